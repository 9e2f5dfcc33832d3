"""Regaining partitions whose server went away, for the pump.

A round trip whose answer was lost may have claimed jobs that nobody here knows of. Then nothing more is claimed there
until everything that is pending for this worker and unknown to it has been handed back, with no attempt used.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from rzsched import calls
from rzsched.connect import backoff_delays
from rzsched.errors import RzschedError
from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink
from rzsched.posts import Lane

_log = logging.getLogger("rzsched.worker")


class Regaining:
    """Regain what was lost, lane by lane; the others go on meanwhile.

    `known` gives the fences of what this worker runs, by partition; `rejoin` makes partitions ready again; `regained`
    is told when there is work again.
    """

    def __init__(self, link: AnyAsyncLink, worker: str, *, known: Callable[[], dict[Partition, list[str]]],
                 rejoin: Callable[[Iterable[Partition]], Coroutine[Any, Any, None]], lanes: dict[Any, Lane],
                 regained: Callable[[], None]) -> None:
        self._link = link
        self._worker = worker
        self._known = known
        self._rejoin = rejoin
        self._lanes = lanes
        self._regained = regained
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._trouble: Iterator[float] | None = None  # the waits between tries, from a failure to the next success

    @property
    def _lost(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if any(post.lost for post in lane.posts)]

    def lose(self, lane: Lane, error: Exception) -> None:
        """Hear that a round trip of a lane failed: none of its partitions can be trusted to be as it is known here."""
        for post in lane.posts:
            post.lost = True
        if self._trouble is None:
            foreign = None if isinstance(error, RzschedError) else error
            _log.warning("the server is away: %s", error, exc_info=foreign)
            self._trouble = backoff_delays()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._regain(self._trouble))

    def serves(self) -> None:
        """Hear that a round trip went well."""
        if self._trouble is not None and not self._lost:
            _log.info("the server is back")
            self._trouble = None

    async def wait(self, lane: Lane) -> None:
        """Wait until nothing of a lane is lost, or nobody tries to regain it any more."""
        while self._task is not None and any(post.lost for post in lane.posts):
            await self._news.wait()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None  # here too: a task that is cancelled before it began never comes to its end
            self._tell()

    async def _regain(self, delays: Iterator[float]) -> None:
        try:
            for delay in delays:
                await asyncio.sleep(delay)
                await asyncio.gather(*map(self._regain_lane, self._lost))
                if not self._lost:
                    break
        finally:
            self._task = None
            self._tell()
        self._regained()

    def _tell(self) -> None:
        """Wake who waits for a lane."""
        self._news.set()
        self._news = asyncio.Event()

    async def _regain_lane(self, lane: Lane) -> None:
        # A round trip still under way may yet bring jobs: then they are known, and must not be handed back. No other
        # one begins while the lane is lost.
        await asyncio.gather(*lane.in_flight, return_exceptions=True)
        known = self._known()
        steps = [
            calls.release(post.place, self._worker,
                          [*known.get(post.place, ()), *(outcome[2] for outcome in post.outcomes)])
            for post in lane.posts
        ]  # fmt: skip
        try:
            await self._rejoin([post.place for post in lane.posts])
            await self._link.execute(steps)
        except Exception as error:
            _log.debug("still without the server: %s", error)
            return
        for post in lane.posts:
            post.lost, post.hot = False, True
        self._tell()
        self._regained()
