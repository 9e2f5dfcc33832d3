"""The verbs run on fakeredis too, with which users test: the whole life of a job, without a server."""

import fakeredis
import pytest
import redis

from rzsched import calls, keys
from rzsched.client import Client
from rzsched.connect import SyncLink
from rzsched.errors import JobFailed
from rzsched.job import State

URL = "redis://fake.invalid:1/0"
PLACE = keys.partition("rz", "default", 0)


@pytest.fixture
def client() -> Client:
    client = Client(URL)
    assert isinstance(client._link, SyncLink)
    client._link._pool = redis.ConnectionPool(
        connection_class=fakeredis.FakeRedisConnection, server=fakeredis.FakeServer(), protocol=2,
        host="fake.invalid", port=1,
    )  # fmt: skip
    client._link.execute([calls.join(PLACE, 15, [("t", 3)])])
    return client


def _claim(client: Client) -> calls.Claimed:
    ((claimed,),) = client._link.execute([calls.claim(PLACE, "w", 15_000, 10, "")])
    assert isinstance(claimed, calls.Claimed)
    return claimed


def _finish(client: Client, run: calls.Claimed, outcome: str, *abc: str) -> calls.Finished:
    (finished,) = client._link.execute(
        [calls.finish(PLACE, "w", 15_000, 0, "", [(outcome, run.id, run.fence, run.entry, *abc)])]  # type: ignore[list-item]
    )
    assert isinstance(finished, calls.Finished)
    return finished


def test_a_job_is_claimed_retried_and_succeeds(client: Client) -> None:
    job_id = client.schedule_job("t", args=[1], idempotency_key="k")
    assert client.schedule_job("t", idempotency_key="k") == job_id
    first = _claim(client)
    renewal = calls.renew(PLACE, "w", 15_000, [(first.id, first.fence, first.entry, "half")])
    assert client._link.execute([renewal]) == [{}]
    assert client.get_job_status(job_id).progress == "half"
    _finish(client, first, "RETRY", "boom", "0", "")
    second = _claim(client)
    assert (second.id, second.attempt) == (job_id, 2)
    assert int(second.fence) > int(first.fence)
    assert _finish(client, first, "SUCCEEDED", "", "1000", "k").notes == {job_id: "STALE"}
    assert _finish(client, second, "SUCCEEDED", "", "60000", "k").notes == {}
    assert client.get_job_status(job_id).state is State.SUCCEEDED


def test_a_later_job_is_promoted_and_dies_and_is_replayed(client: Client) -> None:
    job_id = client.schedule_job("t", delay=1000)
    due_ms = client._link.execute([calls.promote(PLACE, "s", 3, 10)])[0].next_run_at_ms
    assert client._link.execute([calls.promote(PLACE, "s", 3, 10, str(due_ms))])[0].count == 1
    _finish(client, _claim(client), "DEAD", "hopeless", "", "")
    assert [dead.id for dead in client.list_dead("default")] == [job_id]
    with pytest.raises(JobFailed, match="hopeless"):
        client.wait(job_id, timeout=5)
    assert client.replay_dead("default") == 1
    assert _claim(client).attempt == 1


def test_a_lost_run_is_recovered_and_a_waiting_job_cancelled(client: Client) -> None:
    lost = client.schedule_job("t")
    _claim(client)
    assert client._link.execute([calls.recover(PLACE, worker="w")])[0][0].what == "RETRY"
    waiting = client.schedule_job("t", delay=50)
    assert client.cancel_job(waiting)
    assert client.cancel_job(lost)
    counts = client.queue_stats("default")
    assert (counts.scheduled, counts.ready, counts.running, counts.cancelled) == (0, 0, 0, 2)


def test_limits_hold_there_too(client: Client) -> None:
    client.configure_queue("default", concurrency=2, rate=(3, 60))
    jobs = [client.schedule_job("t", concurrency_key=key) for key in "aabcd"]
    (runs,) = client._link.execute([calls.claim(PLACE, "w", 15_000, 10, "")])
    assert ([run.id for run in runs], runs.gate) == ([jobs[0], jobs[2]], "FULL")
    assert client.get_job_status(jobs[1]).parked
    _finish(client, runs[0], "SUCCEEDED", "", "60000", "")
    assert not client.get_job_status(jobs[1]).parked
    (runs,) = client._link.execute([calls.claim(PLACE, "w", 15_000, 10, "")])
    assert (len(runs), runs.gate) == (1, "FULL")
    client.pause("default")
    (runs,) = client._link.execute([calls.claim(PLACE, "w", 15_000, 10, "")])
    assert (runs, runs.gate) == ([], "PAUSED")
