"""C40: a flood starves nobody, slow jobs hold no more than their slots, and a rate holds up no other queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from rzsched import Client, JobSpec
from tests.fleet import Fleet, until

FLOOD_S = 8.0
HANDLER_S = 0.02
SLOTS = 4


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as made:
        yield made
        made.check()


def started(fleet: Fleet, job: str) -> datetime:
    fleet.client.wait(job, 30)
    status = fleet.client.get_job_status(job)
    assert status.attempts == 1
    assert status.started_at is not None
    return status.started_at


def flood(url: str, end: float) -> None:
    """Schedule urgent jobs at twice what the worker can do."""
    with Client(url) as client:
        while time.monotonic() < end:
            count = int(2 * SLOTS / HANDLER_S * 0.1)
            client.schedule_many([JobSpec("sleeps", args=(HANDLER_S,), priority=0) for _ in range(count)])
            time.sleep(0.1)


def test_low_priority_jobs_end_while_urgent_ones_flood_the_queue(fleet: Fleet) -> None:
    fleet.worker("-c", str(SLOTS))
    end = time.monotonic() + FLOOD_S
    flooding = threading.Thread(target=flood, args=(fleet.url, end))
    flooding.start()
    try:
        until(lambda: fleet.client.queue_stats("default").ready > 50)
        low = [fleet.client.schedule_job("record", priority=9) for _ in range(10)]
        assert fleet.client.queue_stats("default").oldest_ready_age > 0
        for job in low:
            started(fleet, job)
        assert time.monotonic() < end, "they were done only once the flood was over"
        assert fleet.client.queue_stats("default").ready > 50
    finally:
        flooding.join()
    fleet.client.pause("default")  # the rest of the flood is of no interest


def test_critical_jobs_start_as_soon_as_slots_are_free(fleet: Fleet) -> None:
    fleet.worker("-c", str(SLOTS))
    slow = fleet.client.schedule_many([JobSpec("sleeps", args=(0.5,), priority=9) for _ in range(100)])
    until(lambda: fleet.client.queue_stats("default").running == SLOTS)
    critical = fleet.client.schedule_many([JobSpec("record", priority=0) for _ in range(10)])
    assert fleet.client.queue_stats("default").running == SLOTS, "a worker holds what it has no slot for"
    began = time.monotonic()
    for job in critical:
        started(fleet, job)
    assert time.monotonic() - began < 1.0
    for job in slow:
        fleet.client.cancel_job(job)
    until(lambda: fleet.pending() == 0)


def test_a_rate_drops_nothing_and_holds_up_no_other_queue(fleet: Fleet) -> None:
    fleet.client.configure_queue("limited", rate=(2, 1))
    fleet.worker("-q", "limited", "-q", "free", "-c", str(SLOTS))
    limited = [fleet.client.schedule_job("record", queue="limited") for _ in range(10)]
    free = [fleet.client.schedule_job("record", queue="free") for _ in range(20)]
    free_starts = [started(fleet, job) for job in free]
    assert fleet.redis.pttl("rz:{limited.0}:started") > 0
    starts = sorted(started(fleet, job) for job in limited)
    assert 4 <= (starts[-1] - starts[0]).total_seconds() < 6
    for first, third in zip(starts, starts[2:], strict=False):
        assert (third - first).total_seconds() >= 1
    assert (max(free_starts) - starts[0]).total_seconds() < 1
    until(lambda: not fleet.redis.exists("rz:{limited.0}:started"), "the limiter's key goes by itself")
