"""The life of an idempotency key: one job a key while it lives, and never a key without a job."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rzsched import keys
from rzsched.client import Client
from rzsched.codec import decode_payload
from rzsched.errors import JobNotFound
from rzsched.job import JobSpec
from tests.conftest import Loops, Process
from tests.producer import Hand, closing_hand
from tests.states import assert_one_place

PLACE = keys.partition("rz", "default", 0)
RACE = """
import sys
from rzsched.client import Client
with Client(sys.argv[1]) as client:
    while not client.queue_stats("start").ready:
        pass
    for index in range(200):
        job_id = client.schedule_job("t", args=(sys.argv[2],), idempotency_key=f"race-{index}")
        print(index, job_id, job_id.created)
"""
KEYED = """
import sys
from rzsched.client import Client
with Client(sys.argv[1]) as client:
    print("ready", flush=True)
    for index in range(int(sys.argv[2]), 10**9):
        client.schedule_job("t", idempotency_key=f"k{index}")
        print(index, flush=True)
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


def keyed(client: Client, **said: Any) -> Any:
    return client.schedule_job("t", idempotency_key="k", **said)


def test_twenty_threads_with_one_key_make_one_job(client: Client, raw: Any, redis_url: str) -> None:
    clients = [Client(redis_url) for _ in range(20)]
    with ThreadPoolExecutor(20) as threads:
        for index in range(50):
            key = f"k{index}"
            futures = [threads.submit(each.schedule_job, "t", idempotency_key=key) for each in clients]
            ids = [future.result() for future in futures]
            assert len(set(ids)) == 1
            assert sum(job_id.created for job_id in ids) == 1
    for each in clients:
        each.close()
    assert raw.xlen(PLACE.ready[5]) == 50


def test_processes_with_the_same_keys_make_one_job_a_key(
    client: Client, raw: Any, redis_url: str, run_python: Any
) -> None:
    processes: list[Process] = [run_python(RACE, redis_url, str(number)) for number in range(4)]
    client.schedule_job("t", queue="start")
    found: dict[str, list[tuple[str, str]]] = {}
    for process in processes:
        assert process.wait(60) == 0, process.output()
        for line in process.output().splitlines():
            index, job_id, created = line.split()
            found.setdefault(index, []).append((job_id, created))
    assert len(found) == 200
    for answers in found.values():
        assert len(answers) == 4
        assert len({job_id for job_id, _ in answers}) == 1
        assert sorted(created for _, created in answers) == ["False", "False", "False", "True"]
    assert raw.xlen(PLACE.ready[5]) == 200


def test_after_success_the_key_is_kept_for_its_time_and_then_free(client: Client, hand: Hand, raw: Any) -> None:
    first = keyed(client, idempotency_ttl=2)
    hand.succeed(key="k")
    assert not keyed(client).created
    assert 0 < raw.pttl(PLACE.base + "idem:k") <= 2000
    assert 0 < raw.pttl(PLACE.base + "done:k") <= 2000
    for name in ("idem:k", "done:k"):
        raw.pexpire(PLACE.base + name, 1)
    while raw.exists(PLACE.base + "idem:k", PLACE.base + "done:k"):
        pass
    again = keyed(client)
    assert again.created
    assert again != first


def test_the_time_of_a_key_begins_at_the_success_and_not_before(client: Client, hand: Hand, raw: Any) -> None:
    keyed(client, idempotency_ttl=2)
    assert raw.pttl(PLACE.base + "idem:k") == -1, "a run of five seconds does not outlive it"
    (run,) = hand.claim()
    assert raw.pttl(PLACE.base + "idem:k") == -1
    assert not keyed(client).created
    hand.end(run, "SUCCEEDED", b"", "0", "k")
    assert not keyed(client).created, "executed, though its record is gone"


@pytest.mark.parametrize("end", ["dead", "cancelled", "cancelled while running", "purged", "deleted by hand"])
def test_a_job_that_ended_otherwise_frees_its_key_at_once(client: Client, hand: Hand, raw: Any, end: str) -> None:
    first = keyed(client)
    if end in {"dead", "purged"}:
        hand.die(key="k")
    elif end == "cancelled":
        client.cancel_job(first)
    elif end == "cancelled while running":
        (run,) = hand.claim()
        client.cancel_job(first)
        assert not keyed(client).created, "it still runs"
        hand.end(run, "CANCELLED", "", "3600000", "k")
    if end == "purged":
        client.purge_dead("default")
    if end == "deleted by hand":
        raw.delete(PLACE.job(first), PLACE.ready[5])
    again = keyed(client)
    assert again.created
    assert again != first


def test_a_job_that_waits_for_a_retry_keeps_its_key(client: Client, hand: Hand) -> None:
    first = keyed(client, delay=0)
    (run,) = hand.claim()
    hand.end(run, "RETRY", "boom", "60000")
    again = keyed(client)
    assert (again, again.created) == (first, False)


def test_the_same_key_with_another_payload_changes_nothing_and_says_so(client: Client) -> None:
    first = keyed(client, args=(1,))
    again = keyed(client, args=(2,), delay=60, priority=0)
    assert (again, again.created) == (first, False)
    assert decode_payload(client.get_job_status(first).payload) == ((1,), {})
    (many,) = client.schedule_many([JobSpec("t", args=(3,), idempotency_key="k")])
    assert (many, many.created) == (first, False)


@pytest.mark.timeout(600)
def test_a_client_killed_in_the_call_leaves_no_key_without_a_job(
    client: Client, raw: Any, redis_url: str, run_python: Any, loops: Loops
) -> None:
    first = 0
    for _ in range(loops(25, 200)):
        process: Process = run_python(KEYED, redis_url, str(first))
        # Killed while it enqueues as fast as it can: after this many, at whatever byte it is.
        while raw.xlen(PLACE.ready[5]) < first + 20:
            assert process.poll() is None, process.output()
        process.send_signal(signal.SIGKILL)
        process.wait()
        first = raw.xlen(PLACE.ready[5])
    stored = raw.keys(PLACE.base + "idem:*")
    holders = {key.decode().partition("idem:")[2]: raw.get(key).decode() for key in stored}
    assert len(holders) == first
    for key, holder in holders.items():
        again = client.schedule_job("t", idempotency_key=key)
        assert (again, again.created) == (holder, False)
        client.get_job_status(holder)


def test_a_key_whose_job_was_never_written_is_free(client: Client, raw: Any) -> None:
    for index in range(200):
        raw.set(f"{PLACE.base}idem:k{index}", f"default.0.gone{index}")
        assert client.schedule_job("t", idempotency_key=f"k{index}").created
    with pytest.raises(JobNotFound):
        client.get_job_status("default.0.gone1")
