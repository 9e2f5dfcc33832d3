"""Special characters in names: each works end to end or is refused, at every call with the same error."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rzsched import keys
from rzsched.client import Client
from rzsched.errors import InvalidName, JobNotFound
from rzsched.job import JobSpec, State
from tests.producer import Hand, closing_hand
from tests.states import assert_one_place

STRANGE = [
    "a:b", "a:b:c:d", "{x}", "x}y{", "*", "?", "[a-z]", " ", "\n", "\0", "é", "../x", "%41", '"', "--help", "", "123",
    "x" * 1000, "a.b", "a\u202eb", "\ud800",
]  # fmt: skip
FINE_QUEUES = {"--help", "123"}
QUEUE_CALLS: list[Callable[[Client, str], Any]] = [
    lambda client, queue: client.schedule_job("t", queue=queue),
    lambda client, queue: client.schedule_many([JobSpec("t", queue=queue)]),
    lambda client, queue: client.list_dead(queue),
    lambda client, queue: client.replay_dead(queue),
    lambda client, queue: client.purge_dead(queue),
    lambda client, queue: client.queue_stats(queue),
]
ID_CALLS: list[Callable[[Client, str], Any]] = [
    lambda client, job_id: client.get_job_status(job_id),
    lambda client, job_id: client.cancel_job(job_id),
    lambda client, job_id: client.wait(job_id, 0),
    lambda client, job_id: client.replay_dead("default", [job_id]),
    lambda client, job_id: client.purge_dead("default", [job_id]),
]


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with Client(redis_url) as found:
        yield found
    assert_one_place(redis_url)


@pytest.fixture
def hand(redis_url: str) -> Iterator[Hand]:
    with closing_hand(redis_url) as found:
        yield found


@pytest.mark.parametrize("name", STRANGE, ids=ascii)
def test_a_queue_works_everywhere_or_is_refused_everywhere(client: Client, hand: Hand, raw: Any, name: str) -> None:
    if name not in FINE_QUEUES:
        said = set()
        for call in QUEUE_CALLS:
            with pytest.raises(InvalidName) as caught:
                call(client, name)
            said.add(str(caught.value))
        assert len(said) == 1
        assert raw.dbsize() == 0
        return
    job_id = client.schedule_job("t", queue=name)
    hand.die(name)
    assert client.replay_dead(name) == 1
    hand.die(name)
    assert client.purge_dead(name, [job_id]) == 1
    assert client.cancel_job(client.schedule_job("t", queue=name))


@pytest.mark.parametrize("name", STRANGE, ids=ascii)
def test_a_job_id_that_never_was_given_out_is_refused_or_not_found(client: Client, raw: Any, name: str) -> None:
    for job_id in (name, f"default.0.{name}"):
        said = set()
        for call in ID_CALLS:
            with pytest.raises((InvalidName, JobNotFound)) as caught:
                call(client, job_id)
            said.add(type(caught.value))
        if job_id != "123":  # which could name a dead entry without a job, but no job
            assert len(said) == 1
    assert raw.dbsize() == 0


@pytest.mark.parametrize("name", STRANGE, ids=ascii)
def test_a_key_is_any_text_and_stands_for_itself_alone(client: Client, hand: Hand, raw: Any, name: str) -> None:
    if name in {"", "x" * 1000, "\ud800"}:
        with pytest.raises(InvalidName):
            client.schedule_job("t", idempotency_key=name)
        assert raw.dbsize() == 0
        return
    plain = client.schedule_job("t", idempotency_key="k")
    job_id = client.schedule_job("t", idempotency_key=name, queue="q")
    assert client.schedule_job("t", idempotency_key=name, queue="q") == job_id
    assert client.get_job_status(job_id).idempotency_key == name
    assert client.cancel_job(job_id)
    assert client.schedule_job("t", idempotency_key=name, queue="q").created
    assert client.get_job_status(plain).state is State.PENDING


@pytest.mark.parametrize("name", STRANGE, ids=ascii)
def test_a_task_or_namespace_with_a_strange_name_is_refused(
    client: Client, raw: Any, redis_url: str, name: str
) -> None:
    if name in {"--help", "123", "a.b"}:
        assert client.schedule_job(name).created
        return
    with pytest.raises(InvalidName):
        client.schedule_job(name)
    with pytest.raises(InvalidName):
        Client(redis_url, name)
    assert raw.dbsize() == 0


def test_no_two_pairs_of_queue_and_key_share_a_key(client: Client) -> None:
    pairs = [("a", "b:c"), ("a", "b"), ("ab", "c"), ("a", "c:b"), ("a", "}:b"), ("a", "{b}")]
    ids = [client.schedule_job("t", queue=queue, idempotency_key=key) for queue, key in pairs]
    assert all(job_id.created for job_id in ids)
    assert len(set(ids)) == len(pairs)
    with pytest.raises(InvalidName):
        client.schedule_job("t", queue="a:b", idempotency_key="c")


def test_purging_a_pattern_touches_nothing(client: Client, hand: Hand, raw: Any) -> None:
    client.schedule_job("t", queue="other")
    hand.die("other")
    for pattern in ("*", "o*", "?ther", "[a-z]*"):
        with pytest.raises(InvalidName):
            client.purge_dead(pattern)
    assert raw.xlen(keys.partition("rz", "other", 0).dead) == 1
