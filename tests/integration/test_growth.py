"""Queues that grow while they are in use: nothing is lost, equal keys meet, limits hold, everybody learns of it."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rzsched import AsyncClient, Client, JobSpec, calls, growth, keys, layout
from rzsched.limits import configure_queue
from tests.fleet import Fleet, until
from tests.states import Stage, assert_one_place, outcome


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as fleet:
        yield fleet


def dumped(raw: Any) -> dict[bytes, bytes]:
    return {key: raw.dump(key) for key in raw.scan_iter()}


def partition_of(job_id: str) -> int:
    return int(job_id.split(".")[1])


def test_jobs_placed_before_stay_reachable_and_new_ones_are_spread(redis_url: str) -> None:
    with Client(redis_url) as client:
        before = client.schedule_many([JobSpec("t", delay=60)] * 20)
        client.configure_queue("default", partitions=4)
        after = client.schedule_many([JobSpec("t", delay=60)] * 200)
        assert {partition_of(job) for job in before} == {0}
        assert {partition_of(job) for job in after} == {0, 1, 2, 3}
        assert {client.get_job_status(job).state for job in before + after} == {"PENDING"}
        assert client.queue_stats("default").partitions == 4
        assert client.cancel_job(before[0])
        assert_one_place(client)


def test_equal_keys_meet_whoever_knows_of_the_new_partitions(redis_url: str) -> None:
    with Client(redis_url) as old, Client(redis_url) as new:
        ids = {key: old.schedule_job("t", idempotency_key=key, delay=60) for key in "abcdefgh"}
        new.configure_queue("default", partitions=2)
        new.configure_queue("default", partitions=5)
        later = {key: new.schedule_job("t", idempotency_key=key, delay=60) for key in "ijklmnop"}
        for client, known in ((new, ids), (old, later)):
            for key, job_id in known.items():
                again = client.schedule_job("t", idempotency_key=key, delay=60)
                assert (again, again.created) == (job_id, False)
        parked = [client.schedule_job("t", concurrency_key="k") for client in (old, new) for _ in range(5)]
        assert len({partition_of(job) for job in parked}) == 1
        assert_one_place(old)


def test_a_queue_made_with_partitions_deals_its_keys_out_over_all(redis_url: str) -> None:
    with Client(redis_url) as client:
        client.configure_queue("wide", partitions=4)
        ids = client.schedule_many(JobSpec("t", queue="wide", idempotency_key=f"{n}") for n in range(100))
        assert {partition_of(job) for job in ids} == {0, 1, 2, 3}
        client.configure_queue("wide", partitions=9)
        again = client.schedule_many(JobSpec("t", queue="wide", idempotency_key=f"{n}") for n in range(100))
        assert again == ids
        assert_one_place(client)


def test_a_schedule_stays_where_it_is(redis_url: str) -> None:
    with Client(redis_url) as client, Client(redis_url) as other:
        for name in "abcdef":
            client.schedule_cron("t", every=3600, id=name)
        client.configure_queue("default", partitions=4)
        for name in "abcdef":
            other.schedule_cron("t", every=3600, id=name)
        assert [cron.id for cron in client.list_crons()] == list("abcdef")
        assert_one_place(client)


def test_shrinking_and_nonsense_are_refused_before_anything_is_written(redis_url: str, raw: Any) -> None:
    with Client(redis_url) as client:
        for odd in (0, -1, layout.MOST_PARTITIONS + 1):
            with pytest.raises(ValueError, match="partitions must be from 1"):
                client.configure_queue("default", partitions=odd)
        for senseless in (True, 1.5, "2"):
            with pytest.raises(TypeError):
                client.configure_queue("default", partitions=senseless)  # type: ignore[arg-type]
        assert raw.dbsize() == 0
        client.configure_queue("default", partitions=3, concurrency=4)
        before = dumped(raw)
        with pytest.raises(ValueError, match="can't shrink"):
            client.configure_queue("default", partitions=2, concurrency=9)
        with pytest.raises(ValueError, match="at least 5"):
            client.configure_queue("default", partitions=5)
        assert dumped(raw) == before
        client.configure_queue("default", partitions=3)  # repeating is harmless
        assert client.queue_stats("default").concurrency == 4


def test_a_running_worker_joins_the_new_partitions_at_once(fleet: Fleet) -> None:
    fleet.worker("-c", "5")
    fleet.client.configure_queue("default", partitions=3)
    began = time.monotonic()
    for number in range(3):
        until(lambda: any(partition_of(fleet.client.schedule_job("record")) == number for _ in range(20)))  # noqa: B023
    until(lambda: fleet.client.queue_stats("default").succeeded >= 3 and fleet.client.queue_stats("default").ready == 0)
    assert time.monotonic() - began < layout.LAYOUT_S
    later = fleet.client.schedule_many([JobSpec("record", delay=0.2)] * 12)
    for job in later:
        fleet.client.wait(job, 10)
    assert len({partition_of(job) for job in later}) > 1
    fleet.check()


async def test_a_client_that_knew_the_queue_learns_in_time(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncClient(redis_url) as knows, AsyncClient(redis_url) as grows:
        assert partition_of(await knows.schedule_job("t")) == 0
        await grows.configure_queue("default", partitions=8)
        assert {partition_of(await knows.schedule_job("t")) for _ in range(20)} == {0}
        monkeypatch.setattr(layout, "LAYOUT_S", 0.0)
        assert len({partition_of(await knows.schedule_job("t")) for _ in range(50)}) > 1


def test_a_server_that_forgot_is_told_how_many_partitions_there_are(redis_url: str, raw: Any) -> None:
    with Client(redis_url) as client, Client(redis_url) as fresh:
        client.configure_queue("default", partitions=4)
        client.schedule_job("t")
        raw.flushall()
        ids = [client.schedule_job("t") for _ in range(20)]
        assert len({partition_of(job) for job in ids}) > 1
        assert fresh.queue_stats("default").ready == 20
        assert_one_place(fresh)


# ---- limits


@pytest.fixture
def stage(redis_url: str) -> Iterator[Stage]:
    stage = Stage(redis_url)
    yield stage
    stage.close()


def claim_at(stage: Stage, number: int, worker: str = "w") -> list[Any]:
    place = keys.partition("rz", "q", number)
    return stage.run(calls.claim(place, worker, 600_000, 100, ""))


def test_a_grown_queue_never_runs_more_than_its_concurrency(stage: Stage) -> None:
    client = stage.client
    client.configure_queue("q", concurrency=4)
    stage.enqueue_many([{}] * 10)
    runs = claim_at(stage, 0)
    assert len(runs) == 4
    client.configure_queue("q", partitions=2)
    client.schedule_many(JobSpec("t", queue="q") for _ in range(60))
    assert claim_at(stage, 0) == claim_at(stage, 1) == []  # 4 run at partition 0, whose share is 2
    ended = [outcome("SUCCEEDED", run) for run in runs[:2]]
    stage.link.execute([calls.finish(stage.place, "w", 600_000, 0, "", ended)])
    assert claim_at(stage, 0) == []
    assert claim_at(stage, 1) == []  # nobody has seen it yet
    let_go(client)
    assert (len(claim_at(stage, 0)), len(claim_at(stage, 1))) == (0, 2)
    assert client.queue_stats("q").concurrency == 4
    stage.check()


def let_go(client: Client) -> None:
    client.run(growth.let_go("rz", keys.partition("rz", "q", 1)))


def test_a_grown_queue_never_starts_more_than_its_rate(stage: Stage) -> None:
    client = stage.client
    client.configure_queue("q", rate=(4, 1))
    stage.enqueue_many([{}] * 10)
    assert len(claim_at(stage, 0)) == 4
    began = time.monotonic()
    client.configure_queue("q", partitions=2)
    client.schedule_many(JobSpec("t", queue="q") for _ in range(60))
    assert claim_at(stage, 1) == []

    def later() -> list[Any]:
        let_go(client)
        return claim_at(stage, 1)

    assert len(until(later)) == 2
    assert time.monotonic() - began > 0.9
    stage.check()


def test_who_died_while_the_queue_grew_is_followed_without_losing_the_limit(stage: Stage) -> None:
    client = stage.client
    client.configure_queue("q", concurrency=6, rate=(9, 5))
    plan = configure_queue(client.space, "q", partitions=3)
    steps = next(plan)
    for _ in range(2):  # up to the smaller shares of the older partitions, and no further
        steps = plan.send(stage.link.execute(steps))
    stage.link.execute(steps)
    assert client.queue_stats("q").concurrency == 2
    client.configure_queue("q", partitions=3)
    stats = client.queue_stats("q")
    assert (stats.partitions, stats.concurrency, stats.rate) == (3, 6, (9, 5))


def test_a_paused_queue_stays_paused_where_it_grows(stage: Stage) -> None:
    client = stage.client
    client.pause("q")
    client.configure_queue("q", partitions=3)
    client.schedule_many(JobSpec("t", queue="q") for _ in range(60))
    assert [claim_at(stage, number) for number in range(3)] == [[], [], []]
    client.resume("q")
    assert all(claim_at(stage, number) for number in range(3))
    stage.check()


def test_a_growing_queue_keeps_its_limit_under_load(fleet: Fleet) -> None:
    fleet.client.configure_queue("default", concurrency=4)
    fleet.forker.worker(concurrency=10)
    fleet.forker.worker(concurrency=10)
    most = 0
    done = threading.Event()

    def look() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, sum(running(fleet, number) for number in range(4)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        ids = fleet.client.schedule_many([JobSpec("sleeps", args=(0.05,))] * 40)
        until(fleet.ledger)
        fleet.client.configure_queue("default", partitions=4)
        ids += fleet.client.schedule_many([JobSpec("sleeps", args=(0.05,))] * 80)
        for job in ids:
            fleet.client.wait(job, 20)
    finally:
        done.set()
        watcher.join()
    assert 2 <= most <= 4
    assert len({partition_of(run["job"]) for run in fleet.ledger()}) == 4
    fleet.check()


def running(fleet: Fleet, number: int) -> int:
    return int(fleet.redis.zcard(keys.partition("rz", "default", number).base + "running"))
