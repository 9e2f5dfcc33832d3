"""Limits over several worker processes: pause and resume, concurrency, rates and concurrency keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from rzsched import AsyncClient, Client, InvalidName, JobSpec, keys
from tests.fleet import Fleet, until

LEASE_S = 1.5


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as made:
        yield made
        made.check()


def workers(fleet: Fleet, count: int, **settings: object) -> list[int]:
    """Start workers without a scheduler, and a scheduler beside them."""
    fleet.forker.scheduler()
    pids = [fleet.forker.worker(**{"scheduler": False, "lease_s": LEASE_S, **settings}) for _ in range(count)]
    until(lambda: len(fleet.client.workers()) == count)
    return pids


def many(fleet: Fleet, task: str, count: int, *args: object, **options: Any) -> list[str]:
    return list(fleet.client.schedule_many([JobSpec(task, args=args, **options) for _ in range(count)]))


def await_all(fleet: Fleet, jobs: list[str], limit_s: float = 20) -> list[tuple[datetime, datetime]]:
    """Wait for all to succeed; give when each started and finished, by the server's clock."""
    for job in jobs:
        fleet.client.wait(job, limit_s)
    statuses = [fleet.client.get_job_status(job) for job in jobs]
    assert {status.attempts for status in statuses} == {1}
    return [(status.started_at, status.finished_at) for status in statuses]  # type: ignore[misc]


def most_at_once(spans: list[tuple[datetime, datetime]]) -> int:
    """Count the runs that overlapped most; one may end and the next begin in the same ms."""
    steps = sorted([(start, 1) for start, _ in spans] + [(end, 0) for _, end in spans])
    running = most = 0
    for _, begins in steps:
        running += 1 if begins else -1
        most = max(most, running)
    return most


def share_of_pace(fleet: Fleet, count: int, handler_s: float, limit: int) -> float:
    """Have jobs run in a queue with a limit, which is reached and kept; give the share of what their time allows.

    That is the time a handler really takes here: a sleep of the event loop is longer than it was asked to be.
    """
    spans = await_all(fleet, many(fleet, "sleeps", count, handler_s))
    assert most_at_once(spans) == limit
    took = (max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds()
    allowed = count * asyncio.run(_sleep_s(handler_s)) / limit
    print(f"concurrency {limit}, handlers of {handler_s:g} s: {allowed / took:.0%} of what they allow")
    return allowed / took


async def _sleep_s(asked_s: float) -> float:
    began = time.monotonic()
    for _ in range(20):
        await asyncio.sleep(asked_s)
    return (time.monotonic() - began) / 20


# ---- pause and resume


def test_a_paused_queue_starts_nothing_until_it_is_resumed(fleet: Fleet) -> None:
    workers(fleet, 2, queues=["default", "other"], concurrency=4)
    held = fleet.client.schedule_job("gated", args=["held"])
    visit = fleet.stand.next("held")
    fleet.client.pause("default")
    assert fleet.client.queue_stats("default").paused
    waiting = [*many(fleet, "record", 5), fleet.client.schedule_job("record", delay=0.2)]
    visit.say()
    fleet.client.wait(held, 10)
    until(lambda: fleet.client.queue_stats("default").ready == 6)
    fleet.client.wait(fleet.client.schedule_job("echo", queue="other"), 5)
    commands = fleet.redis.info("commandstats")
    assert fleet.pending() == 0
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.5)
    now = fleet.redis.info("commandstats")
    calls = {name: now[name]["calls"] - commands[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_xreadgroup")}
    assert max(calls.values()) < 60, "a paused queue keeps nobody busy"
    assert fleet.client.queue_stats("default").ready == 6
    fleet.client.resume("default")
    began = time.monotonic()
    await_all(fleet, waiting)
    assert time.monotonic() - began < 0.7
    assert not fleet.client.queue_stats("default").paused


def test_a_pause_ends_the_reads_that_idle_workers_wait_in(fleet: Fleet) -> None:
    workers(fleet, 3)
    fleet.client.wait(fleet.client.schedule_job("echo"), 10)
    for _ in range(5):
        fleet.client.pause("default")
        jobs = many(fleet, "record", 3)
        until(lambda: fleet.pending() == 0)
        assert {fleet.state(job) for job in jobs} == {"PENDING"}
        fleet.client.resume("default")
        await_all(fleet, jobs)


def test_a_burst_worker_leaves_what_is_paused(fleet: Fleet) -> None:
    job = fleet.client.schedule_job("record")
    fleet.client.pause("default")
    worker = fleet.worker("-b")
    assert worker.wait(10) == 0
    assert fleet.state(job) == "PENDING"


# ---- concurrency


@pytest.mark.timeout(300)
@pytest.mark.alone
def test_a_limited_queue_runs_as_many_as_it_may_and_keeps_its_pace(fleet: Fleet) -> None:
    workers(fleet, 4, concurrency=4)
    fleet.client.configure_queue("default", concurrency=1)
    assert max(share_of_pace(fleet, 70, 0.03, 1) for _ in range(3)) >= 0.8


@pytest.mark.timeout(300)
@pytest.mark.alone
def test_a_limit_of_several_is_reached_and_kept(fleet: Fleet) -> None:
    workers(fleet, 3, concurrency=2)
    fleet.client.configure_queue("default", concurrency=4)
    assert max(share_of_pace(fleet, 120, 0.03, 4) for _ in range(3)) >= 0.8
    fleet.client.configure_queue("default", concurrency=0)
    assert fleet.client.queue_stats("default").concurrency is None
    assert most_at_once(await_all(fleet, many(fleet, "sleeps", 12, 0.3))) > 4


@pytest.mark.timeout(300)
@pytest.mark.alone
def test_jobs_that_come_one_by_one_start_at_once_in_a_limited_queue(fleet: Fleet) -> None:
    workers(fleet, 3)
    fleet.client.configure_queue("default", concurrency=2)
    for _ in range(30):
        began = time.monotonic()
        fleet.client.wait(fleet.client.schedule_job("echo"), 5)
        assert time.monotonic() - began < 0.5


def test_a_killed_worker_frees_its_place_with_its_lease(fleet: Fleet) -> None:
    workers(fleet, 3, concurrency=2, lease_s=3)
    fleet.client.configure_queue("default", concurrency=1)
    held = fleet.client.schedule_job("gated", args=["held"], max_retries=0)
    visit = fleet.stand.next("held")
    after = fleet.client.schedule_job("gated", args=["after"])
    fleet.forker.kill(visit["pid"])
    expires = fleet.client.get_job_status(held).lock_expiry
    assert expires is not None
    fleet.stand.next("after").say()
    fleet.client.wait(after, 10)
    started = fleet.client.get_job_status(after).started_at
    assert started is not None
    assert 0 <= (started - expires).total_seconds() + 0.002 < 1
    fleet.wait_for_state(held, "DEAD")


# ---- rate


def test_a_rate_is_kept_without_holding_up_other_queues(fleet: Fleet) -> None:
    workers(fleet, 2, queues=["slow", "fast"], concurrency=10)
    fleet.client.configure_queue("slow", rate=(5, 0.5))
    assert fleet.client.queue_stats("slow").rate == (5, 0.5)
    slow = many(fleet, "record", 20, queue="slow")
    fast = await_all(fleet, many(fleet, "record", 100, queue="fast"))
    spans = await_all(fleet, slow)
    starts = sorted(start for start, _ in spans)
    for first, sixth in zip(starts, starts[5:], strict=False):
        assert (sixth - first).total_seconds() >= 0.5
    assert 1.5 <= (starts[-1] - starts[0]).total_seconds() < 2
    assert max(end for _, end in fast) < starts[10]


def test_a_worker_with_one_slot_waits_for_a_rate_and_for_jobs_of_another_queue(fleet: Fleet) -> None:
    workers(fleet, 1, queues=["slow", "other"], concurrency=1)
    fleet.client.configure_queue("slow", rate=(2, 0.5))
    slow = many(fleet, "record", 6, queue="slow")
    other = many(fleet, "record", 1, queue="other")
    starts = sorted(start for start, _ in await_all(fleet, slow))
    assert 1 <= (starts[-1] - starts[0]).total_seconds() < 1.3
    await_all(fleet, other)
    for queue in ("other", "slow") * 3:  # whichever it waits at, it hears of both
        began = time.monotonic()
        await_all(fleet, many(fleet, "record", 1, queue=queue))
        assert time.monotonic() - began < 0.9


# ---- concurrency keys


def test_jobs_of_one_key_run_one_at_a_time_and_others_beside_them(fleet: Fleet) -> None:
    workers(fleet, 3, concurrency=5)
    keyed = {key: many(fleet, "sleeps", 20, 0.01, concurrency_key=key) for key in ("ada", "bob")}
    pairs = many(fleet, "sleeps", 20, 0.02, concurrency_key="pair", concurrency_limit=2)
    free = many(fleet, "record", 20)
    await_all(fleet, free)
    spans = {key: await_all(fleet, jobs) for key, jobs in keyed.items()}
    assert {key: most_at_once(found) for key, found in spans.items()} == {"ada": 1, "bob": 1}
    assert most_at_once(await_all(fleet, pairs)) == 2


def test_a_killed_holder_lets_the_next_of_its_key_run(fleet: Fleet) -> None:
    workers(fleet, 2, concurrency=3)
    held = fleet.client.schedule_job("gated", args=["held"], concurrency_key="k", max_retries=0)
    visit = fleet.stand.next("held")
    parked = fleet.client.schedule_job("gated", args=["parked"], concurrency_key="k")
    until(lambda: fleet.client.get_job_status(parked).parked)
    assert fleet.client.queue_stats("default").parked == 1
    fleet.check()
    fleet.forker.kill(visit["pid"])
    expires = fleet.client.get_job_status(held).lock_expiry
    assert expires is not None
    fleet.stand.next("parked").say()
    fleet.client.wait(parked, 10)
    started = fleet.client.get_job_status(parked).started_at
    assert started is not None
    assert -0.002 <= (started - expires).total_seconds() < 1
    assert fleet.client.get_job_status(parked).attempts == 1


def test_a_shutdown_hands_the_slot_of_a_key_on(fleet: Fleet) -> None:
    first = fleet.worker("-c", "2", "--shutdown-timeout", "0")
    fleet.client.schedule_job("gated", args=["held"], concurrency_key="k")
    fleet.stand.next("held")
    parked = fleet.client.schedule_job("gated", args=["parked"], concurrency_key="k")
    until(lambda: fleet.client.get_job_status(parked).parked)
    assert fleet.stop(first) == 0
    fleet.worker("-c", "2")
    fleet.stand.next("parked").say()
    fleet.stand.next("held").say()
    fleet.client.wait(parked, 10)


# ---- what is refused, and where things live


def test_senseless_limits_are_refused_before_anything_is_written(redis_url: str) -> None:
    with Client(redis_url) as client:
        for wrong in ({"concurrency": -1}, {"rate": (1, 0)}, {"rate": (-1, 1)}, {"rate": (1, float("nan"))}):
            with pytest.raises(ValueError):
                client.configure_queue("default", **wrong)
        for odd in ({"concurrency": True}, {"concurrency": 1.5}, {"rate": 2}, {"rate": (1.5, 1)}, {"rate": (1, "1")}):
            with pytest.raises(TypeError):
                client.configure_queue("default", **odd)
        for options in ({"concurrency_key": ""}, {"concurrency_key": "k", "concurrency_limit": 0}):
            with pytest.raises((ValueError, InvalidName)):
                client.schedule_job("t", **options)
        with pytest.raises(InvalidName):
            client.pause("a:b")
        with pytest.raises(TypeError):
            client.schedule_job("t", concurrency_key="k", concurrency_limit="2")  # type: ignore[arg-type]
        assert client.queues() == []


def test_partitions_share_a_limit_and_a_key_has_one_of_them(redis_url: str) -> None:
    with Fleet(redis_url) as fleet:
        fleet.redis.hset(keys.queues("rz"), "default", 3)
        with pytest.raises(ValueError, match="partitions"):
            fleet.client.configure_queue("default", concurrency=2)
        fleet.client.configure_queue("default", concurrency=4)
        assert fleet.client.queue_stats("default").concurrency == 4
        jobs = many(fleet, "record", 9, concurrency_key="k", idempotency_key=None)
        assert len({job.split(".")[1] for job in jobs}) == 1
        both = [fleet.client.schedule_job("record", concurrency_key="k", idempotency_key=key) for key in "abcdef"]
        assert {job.split(".")[1] for job in both} == {jobs[0].split(".")[1]}
        fleet.worker("-c", "20", "-b").wait(20)
        await_all(fleet, [*jobs, *both])
        fleet.check()


async def test_the_async_client_limits_too(redis_url: str) -> None:
    async with AsyncClient(redis_url) as client:
        await client.configure_queue("q", concurrency=3, rate=(2, 60))
        await client.pause("q")
        stats = await client.queue_stats("q")
        assert (stats.paused, stats.concurrency, stats.rate) == (True, 3, (2, 60))
        await client.resume("q")
        await client.configure_queue("q", concurrency=0, rate=(0, 1))
        stats = await client.queue_stats("q")
        assert (stats.paused, stats.concurrency, stats.rate) == (False, None, None)
