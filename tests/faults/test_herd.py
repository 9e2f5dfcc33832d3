"""Two hundred links, and as many workers, lose their server at once: when it is back they do not come all at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from rzsched import JobSpec, calls
from rzsched.connect import AsyncLink, LinkSettings, backoff_delays
from rzsched.errors import ConnectionFailed
from tests.conftest import OwnServer
from tests.fleet import Fleet, until

LINKS = WORKERS = 200
BACK_S = 10.0
GROWN = 5
"""After how many tries the waits have grown to what they are for a server that stays away."""
WINDOW_S = 0.05
"""A sixth of the span over which even the shortest of those waits are spread; some links come twice in that span."""


class Comings:
    """When links whose waits have grown mean to come next; `enough` is set when there are two of each."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.enough = asyncio.Event()

    async def regain(self, link: AsyncLink) -> None:
        """Try again until the server answers, as a worker's pump does."""
        for tries, delay in enumerate(backoff_delays()):
            try:
                await link.execute([calls.command("PING", read=bytes)])
                return
            except ConnectionFailed:
                if tries >= GROWN:
                    self.times.append(time.monotonic() + delay)
                if len(self.times) >= 2 * LINKS:
                    self.enough.set()
                await asyncio.sleep(delay)


def peak(times: list[float]) -> int:
    """Give the most that come within one window."""
    return max(sum(first <= each < first + WINDOW_S for each in times) for first in times)


async def test_links_come_back_spread_over_time(own_server: OwnServer) -> None:
    server = own_server("--maxclients", "1000")
    links = [AsyncLink(server.url, LinkSettings(retry_s=0)) for _ in range(LINKS)]
    comings = Comings()
    for link in links:
        await link.execute([calls.command("PING", read=bytes)])
    server.kill()
    back = asyncio.gather(*(comings.regain(link) for link in links))
    await asyncio.wait_for(comings.enough.wait(), 60)
    await asyncio.to_thread(server.restart)
    await back
    assert peak(comings.times) < LINKS / 2
    for link in links:
        await link.aclose()


@pytest.mark.alone
def test_two_hundred_workers_come_back_and_work(own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always", "--maxclients", "4000")
    with Fleet(server.url) as fleet:
        fleet.forker.scheduler()
        pids = {fleet.forker.worker(concurrency=4, scheduler=False) for _ in range(WORKERS)}
        until(lambda: len(fleet.client.workers()) == WORKERS, "all are there", 60)
        server.kill()
        server.restart()
        began = time.monotonic()
        for job in fleet.client.schedule_many([JobSpec("record")] * 2 * WORKERS):
            fleet.client.wait(job, BACK_S)
        until(lambda: {each.pid for each in fleet.client.workers()} == pids, "all are back")
        assert time.monotonic() - began < BACK_S
        assert fleet.redis.info("stats")["rejected_connections"] == 0
        fleet.check()
