"""A node whose clock the test moves (the key `clock`): it fires schedules, and runs and recovers their jobs."""

import asyncio
import sys
from typing import Any

import redis

from rzsched import calls, keys
from rzsched.calls import Claimed
from rzsched.connect import AsyncLink, LinkSettings
from rzsched.firing import fire_due

LEASE_MS = 150


def outcome_of(run: Claimed) -> calls.Outcome:
    return ("SUCCEEDED", run.id, run.fence, run.entry, "", "3600000", "")


async def serve(url: str, name: str) -> None:
    link, raw, place = AsyncLink(url, LinkSettings()), redis.Redis.from_url(url), keys.partition("rz", "q", 0)
    raw.incr("up")
    while True:
        clock: Any = raw.get("clock")
        now_ms = clock.decode()
        await fire_due(link, "rz", place, now_ms=now_ms)
        claimed: list[Claimed]
        (claimed,) = await link.execute([calls.claim(place, name, LEASE_MS, 10, "", (), now_ms)])
        for run in claimed:
            raw.rpush("ran", run.id)
            await link.execute([calls.finish(place, name, LEASE_MS, 0, "", [outcome_of(run)], now_ms)])
        if not claimed:
            await link.execute([calls.recover(place, idle_s=LEASE_MS / 1000, now_ms=now_ms)])
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
