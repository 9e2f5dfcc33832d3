"""Due jobs in numbers, on a real server: workers that are under way help themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rzsched import JobSpec
from tests.fleet import Fleet, until


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as fleet:
        yield fleet
        fleet.check()


def test_a_worker_under_way_needs_no_scheduler_for_what_is_due(fleet: Fleet) -> None:
    fleet.forker.worker(concurrency=1, scheduler=False)
    first = fleet.client.schedule_job("gated", args=("first",))
    visit = fleet.stand.next("first")
    due_s = time.time() + 2
    jobs = fleet.client.schedule_many([JobSpec("record", run_at=due_s)] * 20)
    until(lambda: fleet.redis.time()[0] > due_s + 1, "all are due")
    assert fleet.client.queue_stats("default").scheduled == len(jobs), "a busy machine has taken so long to write them"
    visit.say()
    for job in (first, *jobs):
        fleet.client.wait(job, 10)


def test_a_herd_fills_every_slot_of_sleeping_workers(fleet: Fleet) -> None:
    """More than a batch, in one instant; each job keeps its slot until all have come."""
    for _ in range(3):
        fleet.forker.worker(concurrency=50)
    until(lambda: len(fleet.client.workers()) == 3, "all are there")
    due_s = time.time() + 1.5
    jobs = fleet.client.schedule_many([JobSpec("gated", args=(str(n),), run_at=due_s) for n in range(150)])
    for visit in [fleet.stand.next() for _ in jobs]:
        visit.say()
    for job in jobs:
        fleet.client.wait(job, 20)


def test_a_heap_of_expired_jobs_holds_nobody_up(fleet: Fleet) -> None:
    """One call ends so many at most; the worker asks again by itself, for nobody else would wake it."""
    fleet.forker.worker(concurrency=1, scheduler=False)
    first = fleet.client.schedule_job("gated", args=("first",))
    visit = fleet.stand.next("first")
    due_s = time.time() + 2
    fleet.client.schedule_many([JobSpec("record", run_at=due_s, expires=0.001)] * 1000)
    behind = fleet.client.schedule_job("record", run_at=due_s + 0.5)
    until(lambda: fleet.redis.time()[0] > due_s + 1, "all are due")
    visit.say()
    for job in (first, behind):
        fleet.client.wait(job, 10)
    assert fleet.client.queue_stats("default").cancelled == 1000
