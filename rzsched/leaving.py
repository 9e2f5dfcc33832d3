"""Leaving: what a worker has still to settle is settled, and what is pending for it goes back to others."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any

from rzsched import calls
from rzsched.connect import backoff_delays
from rzsched.links import AnyAsyncLink
from rzsched.posts import Lane

_log = logging.getLogger("rzsched.worker")


async def leave(link: AnyAsyncLink, worker: str, lease_ms: int, lanes: Iterable[Lane],
                in_flight: Collection["asyncio.Task[None]"], limit_s: float) -> None:
    """Leave all partitions, once what is `in_flight` has landed; tried again for `limit_s` seconds."""
    left = list(lanes)
    delays = backoff_delays()
    try:
        # A server that stands still would keep each try waiting for as long as an answer may take.
        async with asyncio.timeout(limit_s):
            while True:
                await asyncio.gather(*in_flight, return_exceptions=True)
                stays = await asyncio.gather(*(_leave(link, worker, lease_ms, lane) for lane in left))
                left = [lane for lane, stay in zip(left, stays, strict=True) if stay]
                if not left:
                    return
                await asyncio.sleep(next(delays))
    except TimeoutError:
        _log.error("left without the server: other workers recover this one's jobs when their leases end")


async def _leave(link: AnyAsyncLink, worker: str, lease_ms: int, lane: Lane) -> bool:
    """Leave the partitions of a lane; say whether that failed."""
    steps: list[Any] = []
    for post in lane.posts:
        if post.outcomes:
            steps.append(calls.finish(post.place, worker, lease_ms, 0, "", post.outcomes))
        steps.append(calls.release(post.place, worker, leave=True))
    try:
        await link.execute(steps)
    except Exception as error:
        _log.warning("leaving is delayed: %s", error)
        return True
    return False
