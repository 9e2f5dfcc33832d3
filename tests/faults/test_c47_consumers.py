"""C47: dead consumers disappear, and never with anything pending."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import redis

from rzsched import JobSpec, calls, keys
from rzsched.space import Plan
from tests.conftest import Loops
from tests.fleet import Fleet, until

LEASE_S = 1.0


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as made:
        yield made
        made.check()


def consumers(fleet: Fleet) -> set[str]:
    found: set[str] = set()
    for stream in fleet.place.ready:
        try:
            found |= {each["name"].decode() for each in fleet.redis.xinfo_consumers(stream, keys.GROUP)}
        except redis.ResponseError:
            continue
    return found


def prune_now(fleet: Fleet) -> Plan[None]:
    """Clean as the scheduler does every few seconds."""
    yield [calls.prune(fleet.place, 0.001, 1000)]


@pytest.mark.alone
def test_fifty_killed_workers_leave_no_consumer_and_lose_no_job(fleet: Fleet) -> None:
    victims = [fleet.forker.worker(concurrency=1, lease_s=LEASE_S, scheduler=False) for _ in range(50)]
    until(lambda: len(fleet.client.workers()) == 50, limit_s=40)
    jobs = [fleet.client.schedule_job("gated", args=["job"]) for _ in range(50)]
    first = [fleet.stand.next("job") for _ in jobs]
    assert {visit["pid"] for visit in first} == set(victims)
    assert len(consumers(fleet)) == 50
    for pid in victims:
        fleet.forker.kill(pid)
    fleet.forker.worker(concurrency=50, lease_s=LEASE_S, scheduler=False)
    fleet.forker.scheduler(consumer_idle_s=2.0)
    for _ in jobs:
        visit = fleet.stand.next("job")
        assert visit["attempt"] == 2
        visit.say()
    for job in jobs:
        fleet.client.wait(job, 10)
    until(lambda: len(consumers(fleet)) <= 1, "only live consumers are left", limit_s=10)
    assert len(fleet.client.workers()) == 1
    assert fleet.pending() == 0
    assert Counter(each["job"] for each in fleet.ledger("end")) == dict.fromkeys(jobs, 1)


@pytest.mark.timeout(600)
def test_workers_killed_as_they_fetch_lose_nothing_to_the_cleaner(fleet: Fleet, loops: Loops) -> None:
    """The cleaner takes any consumer that has nothing pending, idle or not, all the time."""
    fleet.forker.scheduler(consumer_idle_s=0.001, idle_s=0.02, lease_s=0.5)
    jobs: list[str] = []
    for _ in range(loops(60, 200)):
        jobs += fleet.client.schedule_many(JobSpec("record", priority=n % 10, max_retries=100) for n in range(10))
        begun = len(fleet.ledger())
        victim = fleet.forker.worker(concurrency=3, lease_s=LEASE_S, scheduler=False)
        until(lambda: len(fleet.ledger()) > begun)  # noqa: B023 - it fetches and runs now
        instant = time.monotonic() + random.uniform(0, 0.01)
        while time.monotonic() < instant:
            fleet.client.run(prune_now(fleet))
        fleet.forker.kill(victim)
        fleet.client.run(prune_now(fleet))
    fleet.forker.worker(concurrency=20, lease_s=LEASE_S, scheduler=False)
    until(lambda: fleet.client.queue_stats("default").succeeded == len(jobs), limit_s=LEASE_S + 10)
    assert {each["job"] for each in fleet.ledger()} == set(jobs)
    assert fleet.pending() == 0
    assert fleet.client.queue_stats("default").dead == 0
