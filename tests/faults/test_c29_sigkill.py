"""C29: workers are killed with SIGKILL; their jobs run again within a lease, and only what ran used an attempt."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from rzsched import JobSpec
from tests.conftest import Loops
from tests.fleet import Fleet, until
from tests.producer import Hand

LEASE_S = 1.0
NOTICED_S = LEASE_S + 1.0
"""A lease, and what the scheduler sleeps between its looks."""


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as made:
        yield made
        made.check()


def test_a_job_whose_worker_is_killed_runs_again(fleet: Fleet) -> None:
    fleet.forker.scheduler()
    victim = fleet.forker.worker(lease_s=LEASE_S, scheduler=False)
    job = fleet.client.schedule_job("gated", args=["job"])
    first = fleet.stand.next("job")
    assert first["pid"] == victim
    fleet.forker.worker(lease_s=LEASE_S, scheduler=False)
    until(lambda: len(fleet.client.workers()) == 2)
    fleet.forker.kill(victim)
    killed = time.monotonic()
    again = fleet.stand.next("job", limit_s=NOTICED_S + 1)
    assert time.monotonic() - killed < NOTICED_S
    assert again["attempt"] == 2 and again["fence"] > first["fence"]
    again.say("done")
    assert fleet.client.wait(job, 5) == "done"
    status = fleet.client.get_job_status(job)
    assert (status.attempts, status.last_error) == (2, "worker lost")
    assert fleet.client.queue_stats("default").recovered == 1


def test_only_what_had_begun_uses_an_attempt(fleet: Fleet) -> None:
    """One runs and nine wait: a worker with one slot holds only the one."""
    jobs = [fleet.client.schedule_job("gated", args=["job"]) for _ in range(10)]
    victim = fleet.forker.worker(concurrency=1, lease_s=LEASE_S)
    begun = fleet.stand.next("job")
    assert fleet.pending() == 1
    fleet.forker.kill(victim)
    fleet.forker.worker(concurrency=10, lease_s=LEASE_S)
    visits = [fleet.stand.next("job", limit_s=2 * LEASE_S + 2) for _ in range(10)]
    for visit in visits:
        assert visit["attempt"] == (2 if visit["job"] == begun["job"] else 1)
        visit.say()
    for job in jobs:
        fleet.client.wait(job, 5)


def test_entries_delivered_to_a_worker_that_died_before_it_claimed_use_no_attempt(fleet: Fleet) -> None:
    """The gap between fetch and start: entries are pending, and no run has begun."""
    job = fleet.client.schedule_job("gated", args=["job"])
    for stream in fleet.place.ready:
        fleet.redis.xgroup_create(stream, "workers", "0", mkstream=True)
    assert fleet.redis.xreadgroup("workers", "dead-before-claim", {fleet.place.ready[5]: ">"}, count=1)
    fleet.forker.worker(lease_s=LEASE_S)
    visit = fleet.stand.next("job", limit_s=2 * LEASE_S + 2)
    assert visit["attempt"] == 1
    visit.say()
    fleet.client.wait(job, 5)


def test_killing_whoever_recovers_holds_recovery_up_no_longer_than_its_lease(fleet: Fleet, loops: Loops) -> None:
    """Again and again a scheduler is killed when it has just begun to take back what a dead worker held."""
    lease_s = 0.3
    hand = Hand(fleet.url, "dead-worker")
    fleet.redis.hset(fleet.place.fixed[3], "lease_ms", 100)
    taken_back = 0
    held_up: list[float] = []
    for loop in range(loops(30, 50)):
        jobs = fleet.client.schedule_many(JobSpec("t") for _ in range(30))
        runs = hand.claim(limit=60)
        assert {run.id for run in runs} == set(jobs)
        fleet.redis.delete(*(fleet.place.lock(run.id) for run in runs))
        known = set(fleet.redis.zrange("rz:schedulers", 0, -1))
        scheduler = fleet.forker.scheduler(lease_s=lease_s, idle_s=0.05)
        # How long a process takes to start is not the question.
        until(lambda seen=known: not seen.issuperset(fleet.redis.zrange("rz:schedulers", 0, -1)))  # type: ignore[misc]
        began = time.monotonic()
        until(lambda known=taken_back: fleet.client.queue_stats("default").recovered > known)  # type: ignore[misc]
        held_up.append(time.monotonic() - began)
        fleet.forker.kill(scheduler)
        taken_back = fleet.client.queue_stats("default").recovered
        for run in hand.claim(limit=60):
            assert hand.end(run, "SUCCEEDED", b"", "60000") == {}
        left = 30 * (loop + 1) - taken_back  # a recovery is one script: all of a partition or nothing
        assert (left, fleet.pending()) == (0, 0)
    hand.close()
    # A crowded machine may let one new process wait for seconds, not half of them.
    assert statistics.median(held_up) < lease_s + 0.5


def test_new_workers_finish_what_all_the_old_ones_left(fleet: Fleet) -> None:
    old = [fleet.forker.worker(concurrency=3, lease_s=LEASE_S) for _ in range(3)]
    jobs = [fleet.client.schedule_job("gated", args=["job"]) for _ in range(9)]
    for _ in jobs:
        fleet.stand.next("job")
    more = [fleet.client.schedule_job("record") for _ in range(20)]
    delayed = fleet.client.schedule_job("record", delay=1)
    for pid in old:
        fleet.forker.kill(pid)
    began = time.monotonic()
    new = {fleet.forker.worker(concurrency=10, lease_s=LEASE_S) for _ in range(2)}
    visits = [fleet.stand.next("job") for _ in jobs]
    assert time.monotonic() - began < 3 + LEASE_S + 1.5, "the schedulers' lease, the workers' lease, and a look"
    for visit in visits:
        assert visit["attempt"] == 2 and visit["pid"] in new
        visit.say()
    for job in (*jobs, *more, delayed):
        fleet.client.wait(job, 5)
    until(lambda: {worker.pid for worker in fleet.client.workers()} == new)
    assert {fleet.client.get_job_status(job).attempts for job in more} == {1}
    assert fleet.client.queue_stats("default").running == 0
