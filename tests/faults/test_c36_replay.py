"""Dead-letter replay: whole, once, resumable, and it hides nothing."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rzsched import dead_letters, keys
from rzsched.client import Client
from rzsched.codec import decode_payload
from rzsched.connect import LinkSettings, SyncLink
from rzsched.errors import JobNotFound
from rzsched.job import JobSpec, State
from tests.conftest import Process
from tests.producer import Hand, closing_hand
from tests.states import assert_one_place

PLACE = keys.partition("rz", "default", 0)
PAYLOAD = ({"b": b"\x00\xff", "u": "e\u0301", "n": 2**63},)
MANY = 12_000
REPLAY_ALL = """
import sys
from rzsched.client import Client
with Client(sys.argv[1]) as client:
    print(client.replay_dead("default"))
"""


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with Client(redis_url) as found:
        yield found
    assert_one_place(redis_url)


@pytest.fixture
def hand(redis_url: str) -> Iterator[Hand]:
    with closing_hand(redis_url) as found:
        yield found


def ready_ids(raw: Any) -> list[str]:
    return [fields[b"id"].decode() for key in PLACE.ready for _, fields in raw.xrange(key)]


def bury(client: Client, hand: Hand, count: int) -> list[str]:
    ids = client.schedule_many([JobSpec("t") for _ in range(count)])
    hand.die_all("default", count)
    return list(ids)


def test_a_replayed_job_is_the_same_job_with_fresh_attempts(client: Client, hand: Hand, raw: Any) -> None:
    said: dict[str, Any] = {"priority": 7, "idempotency_key": "k", "max_retries": 4, "timeout": 9, "expires": 600}
    job_id = client.schedule_job("t", args=PAYLOAD, **said)
    before = raw.hgetall(PLACE.job(job_id))
    for replays in (1, 2):
        hand.die(error=f"boom {replays}", key="k")
        assert client.replay_dead("default", [job_id]) == 1
        status = client.get_job_status(job_id)
        assert (status.state, status.attempts, status.replays) == (State.PENDING, 0, replays)
        assert status.last_error == f"boom {replays}", "its history is kept"
        assert decode_payload(status.payload) == (PAYLOAD, {})
        after = raw.hgetall(PLACE.job(job_id))
        assert {name: after.get(name) for name in before} == {**before, b"entry": after[b"entry"]}
        assert int(after[b"past_attempts"]) == replays
        assert client.schedule_job("t", idempotency_key="k") == job_id, "the key is its own again"
    assert ready_ids(raw) == [job_id]


def test_two_at_once_give_one_run(client: Client, hand: Hand, raw: Any) -> None:
    for _ in range(20):
        job_id = client.schedule_job("t")
        hand.die()

        def replay(job_id: str = job_id) -> int:
            try:
                return client.replay_dead("default", [job_id])
            except JobNotFound:
                return 0

        with ThreadPoolExecutor(2) as threads:
            futures = [threads.submit(replay) for _ in range(2)]
            assert sum(future.result() for future in futures) == 1
        assert ready_ids(raw) == [job_id]
        hand.succeed()


def test_all_are_replayed_once_even_from_two_shells(client: Client, hand: Hand, raw: Any, redis_url: str) -> None:
    ids = bury(client, hand, MANY)
    with Client(redis_url) as other, ThreadPoolExecutor(2) as threads:
        counts = list(threads.map(lambda each: int(each.replay_dead("default")), (client, other)))
    assert sum(counts) == MANY
    assert sorted(ready_ids(raw)) == sorted(ids)
    assert client.queue_stats("default").dead == 0


def test_a_replay_that_is_killed_in_the_middle_is_resumed(
    client: Client, hand: Hand, raw: Any, redis_url: str, run_python: Any
) -> None:
    ids = bury(client, hand, MANY)
    process: Process = run_python(REPLAY_ALL, redis_url)
    while raw.xlen(PLACE.dead) == MANY:
        assert process.poll() is None, process.output()
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = raw.xlen(PLACE.dead)
    assert len(ready_ids(raw)) == MANY - left
    assert client.replay_dead("default") == left
    assert sorted(ready_ids(raw)) == sorted(ids)


def test_what_dies_again_meanwhile_waits_for_the_next_replay(
    client: Client, hand: Hand, raw: Any, redis_url: str
) -> None:
    link = SyncLink(redis_url, LinkSettings())
    bury(client, hand, 600)
    plan = dead_letters.replay_dead(client.space, "default")
    steps = next(plan)
    pages = 0
    while True:
        answers = link.execute(steps)
        if getattr(steps[0], "script", "") == "replay":
            pages += 1
            hand.die_all("default", len(ready_ids(raw)))
        try:
            steps = plan.send(answers)
        except StopIteration as stop:
            assert stop.value == 600
            break
    link.close()
    assert pages == 2
    assert raw.xlen(PLACE.dead) == 600


def test_a_job_whose_key_another_holds_is_refused_and_stays_dead(client: Client, hand: Hand, raw: Any) -> None:
    dead = client.schedule_job("t", idempotency_key="k")
    hand.die(key="k")
    other = client.schedule_job("t")
    hand.die()
    holder = client.schedule_job("t", idempotency_key="k")
    assert holder.created
    replayed = client.replay_dead("default")
    assert (replayed, replayed.refused) == (1, {dead: holder})
    named = client.replay_dead("default", [dead])
    assert (named, named.refused) == (0, {dead: holder})
    assert [job.id for job in client.list_dead("default")] == [dead]
    assert sorted(ready_ids(raw)) == sorted([other, holder])
    assert client.cancel_job(holder)
    assert client.replay_dead("default", [dead]) == 1
