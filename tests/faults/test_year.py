"""A year of nights under a clock that is moved, on three nodes that are killed at random: every business date once."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rzsched import Client, keys
from rzsched.cron import parse_cron
from tests.conftest import Process, StartProcess
from tests.fleet import until
from tests.states import assert_one_place

ZONE = "America/New_York"
NIGHTS = {"gap": "30 2 * * *", "fold": "30 1 * * *", "midnight": "0 0 * * *"}
FIRST, LAST = date(2026, 1, 1), date(2026, 12, 31)
KILL_EVERY_S = 0.25


@pytest.mark.timeout(300)
@pytest.mark.alone
def test_every_business_date_exactly_once(redis_url: str, raw: Any, processes: StartProcess) -> None:
    place, zone = keys.partition("rz", "q", 0), ZoneInfo(ZONE)
    clock = int(datetime(2025, 12, 31, 12, tzinfo=zone).timestamp() * 1000)
    end = int(datetime(2026, 12, 31, 12, tzinfo=zone).timestamp() * 1000)

    def start() -> Process:
        name = f"node-{random.randrange(10**9)}"
        return processes(sys.executable, "-m", "tests.clocked_node", redis_url, name)

    with Client(redis_url) as client:
        for name, cron in NIGHTS.items():
            client.schedule_cron("close", id=name, cron=cron, tz=ZONE, queue="q", overlap="wait")
            first = parse_cron(cron, ZONE).next_after(clock)
            assert first is not None
            raw.hset(place.cron(name), "next", first)
            raw.zadd(place.crons, {name: first})
        raw.set("clock", begin := clock)
        nodes, spare, kills = [start() for _ in range(3)], [start() for _ in range(3)], 0
        kill_at = time.monotonic() + KILL_EVERY_S

        def all_up() -> bool:
            return bool(raw.get("up") == b"%d" % (kills + 6))

        while clock < end:
            clock = min(end, clock + random.randrange(20 * 3_600_000))
            raw.set("clock", clock)
            if (clock - begin) / (end - begin) > (kills + 1) / 8:  # a fast year waits for slow nodes
                until(all_up)
            while raw.zrange(place.crons, 0, 0, withscores=True)[0][1] <= clock:
                # Not while nodes are still coming up: on a slow machine there would soon be none.
                if time.monotonic() >= kill_at and all_up():
                    nodes.pop(random.randrange(len(nodes))).kill()
                    nodes.append(spare.pop(0))
                    spare.append(start())
                    kill_at, kills = time.monotonic() + KILL_EVERY_S, kills + 1

        def idle() -> bool:
            stats = client.queue_stats("q")  # one look: what waited for an end is ready in the same instant
            return stats.ready + stats.running == 0

        until(idle)
        for node in nodes + spare:
            node.kill()
        assert kills >= 3
        every = {FIRST + timedelta(days=n) for n in range((LAST - FIRST).days + 1)}
        ran = {job.decode() for job in raw.lrange("ran", 0, -1)}
        for name in NIGHTS:
            found = client.get_cron(name)
            dates = Counter(business_date(job, zone) for job in ran if f".{name}-" in job)
            assert set(dates) == every
            assert set(dates.values()) == {1}
            assert (found.fired, found.skipped) == (len(every), 0)
        assert_one_place(client)


def business_date(job_id: str, zone: ZoneInfo) -> date:
    at = datetime.fromtimestamp(int(job_id.rpartition("-")[2]) / 1000, UTC)
    return at.astimezone(zone).date()
