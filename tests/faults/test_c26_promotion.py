"""C26: schedulers are killed all the time, and every due job comes into the ready stream exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter

from rzsched import JobSpec
from tests.fleet import Fleet, until

KILL_EVERY_S = 0.2
KILLS = 35


def test_killed_schedulers_neither_lose_nor_double_a_job(redis_url: str) -> None:
    """Short leases and small batches, so that many kills fall into a promotion."""
    settings = {"lease_s": 0.6, "batch": 20, "idle_s": 0.1}
    with Fleet(redis_url) as fleet:
        first = time.time() + 1
        ids = fleet.client.schedule_many(JobSpec("t", run_at=first) for _ in range(1000))
        for wave in range(60):
            ids += fleet.client.schedule_many(JobSpec("t", run_at=first + wave / 10) for _ in range(40))
        schedulers = [fleet.forker.scheduler(**settings) for _ in range(3)]
        kill_at, kills = time.monotonic() + KILL_EVERY_S, 0
        while kills < KILLS:
            fleet.check()  # no job in neither place, none in both, at any moment
            if time.monotonic() >= kill_at:
                fleet.forker.kill(schedulers.pop(random.randrange(3)))
                schedulers.append(fleet.forker.scheduler(**settings))
                kill_at += KILL_EVERY_S
                kills += 1
        until(lambda: fleet.client.queue_stats("default").ready == len(ids), limit_s=5)
        entries = Counter(
            fields[b"id"].decode() for stream in fleet.place.ready for _, fields in fleet.redis.xrange(stream)
        )
        assert set(entries) == set(ids)
        assert set(entries.values()) == {1}
        assert fleet.redis.zcard(fleet.place.scheduled) == 0
        fleet.check()
