"""Two hundred links lose their server at once: when it is back they do not come all at once."""

from __future__ import annotations

import asyncio
import time

from rzsched import calls
from rzsched.connect import AsyncLink, LinkSettings, backoff_delays
from rzsched.errors import ConnectionFailed
from tests.conftest import OwnServer

LINKS = 200
DOWN_S = 2.0
GROWN_S = 1.0
"""From when on the waits have grown to what they are for a server that stays away."""
WINDOW_S = 0.05
"""A sixth of the span over which even the shortest of those waits are spread; some links come twice in that span."""


async def regain(link: AsyncLink, comes: list[float]) -> None:
    """Try again until the server answers, as a worker's pump does; note when it means to come."""
    for delay in backoff_delays():
        try:
            await link.execute([calls.command("PING", read=bytes)])
            return
        except ConnectionFailed:
            comes.append(time.monotonic() + delay)
            await asyncio.sleep(delay)


def peak(times: list[float]) -> int:
    """Give the most that come within one window."""
    return max(sum(first <= each < first + WINDOW_S for each in times) for first in times)


async def test_links_come_back_spread_over_time(own_server: OwnServer) -> None:
    server = own_server("--maxclients", "1000")
    links = [AsyncLink(server.url, LinkSettings(retry_s=0)) for _ in range(LINKS)]
    comes: list[float] = []
    for link in links:
        await link.execute([calls.command("PING", read=bytes)])
    server.kill()
    killed = time.monotonic()
    back = asyncio.gather(*(regain(link, comes) for link in links))
    await asyncio.wait([asyncio.ensure_future(back)], timeout=DOWN_S)
    await asyncio.to_thread(server.restart)
    await back
    grown = [each for each in comes if each >= killed + GROWN_S]
    assert len(grown) >= LINKS, "they tried while it was down"
    assert peak(grown) < LINKS / 2
    for link in links:
        await link.aclose()
