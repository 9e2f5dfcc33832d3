"""Waiting for jobs: the blocking reads of a worker that has nothing to claim and a slot to run a job in.

On one server one read waits at all partitions. In a cluster a read can wait in one slot only, so there is one for each
partition. All of them together hold one of the worker's slots, so that even one slot waits everywhere at once and no
job waits for its turn to be looked for. When a job comes that takes the last slot, the other reads are ended; what one
of them still brings in that moment is given back, with no attempt used, for whoever has a slot.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink
from rzsched.posts import Lane, Post
from rzsched.reader import BlockingReader, Delivery, GroupsGone
from rzsched.regaining import Regaining


class Slots(Protocol):
    """What the reads need of the pump."""

    free: int
    closing: bool
    kick: asyncio.Event
    room: asyncio.Event
    posts: dict[Partition, Post]

    @property
    def claims(self) -> bool: ...

    def lose(self, lane: Lane, error: Exception) -> None: ...

    async def claim_delivered(self, lane: Lane, deliveries: list[Delivery], share: int) -> None: ...


class IdleReads:
    """The reads of one worker, a task for each lane."""

    def __init__(self, link: AnyAsyncLink, worker: str, lease_s: float, pump: Slots, regaining: Regaining, *,
                 rejoin: Callable[[Iterable[Partition]], Coroutine[Any, Any, None]]) -> None:
        self._link = link
        self._worker = worker
        self._lease_s = lease_s
        self._pump = pump
        self._regaining = regaining
        self._rejoin = rejoin
        self._readers: dict[Lane, BlockingReader] = {}
        self._unblocking: dict[Lane, asyncio.Task[None]] = {}
        self.holds = False

    async def run(self, lane: Lane) -> None:
        """Wait for jobs of one lane whenever there is nothing to claim."""
        reader = self._readers[lane] = BlockingReader(self._link, self._worker, self._lease_s)
        while not self._pump.closing:
            places = self._idle_places(lane)
            if not places:
                self._pump.room.clear()
                await self._pump.room.wait()
                continue
            self._hold()
            deliveries = await self._read(lane, reader, places)
            # What was pending here when the link was lost is being handed back: only what then is left counts.
            await self._regaining.wait(lane)
            if deliveries:
                await self._pump.claim_delivered(lane, deliveries, 1 + len(self._reading))
                self._hold_on()
            self._pump.kick.set()

    async def _read(self, lane: Lane, reader: BlockingReader, places: list[Partition]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        lane.reading = places
        try:
            deliveries = await reader.read(places)
        except GroupsGone:
            await self._try(lane, self._rejoin(places))
        except Exception as error:
            self._pump.lose(lane, error)
        finally:
            lane.reading = []
            if deliveries or not self._reading:
                self._let_go()
        return deliveries

    def _idle_places(self, lane: Lane) -> list[Partition]:
        """Say where to wait for jobs, if nothing is hot; what a shut post brought would only be given back."""
        pump = self._pump
        if (pump.free < 1 and not self.holds) or not pump.claims or any(
            post.hot and not post.lost for post in pump.posts.values()
        ):
            return []
        if any(post.lost for post in lane.posts):
            return []
        return [post.place for post in lane.posts if post.shut is None]

    # ---- the slot that all reads hold

    @property
    def _reading(self) -> list[Lane]:
        return [lane for lane in self._readers if lane.reading]

    def _hold(self) -> None:
        if not self.holds:
            self._pump.free -= 1
            self.holds = True

    def _let_go(self) -> None:
        if self.holds:
            self._pump.free += 1
            self.holds = False

    def _hold_on(self) -> None:
        """Have the reads that are still under way hold a slot again; end them where none is left."""
        if self._reading and not self.holds and self._pump.free > 0:
            self._hold()
        elif not self.holds:
            self.end_all()

    def free_the_slot(self) -> None:
        """End the reads if they hold the only slot: it is wanted for something else."""
        if self.holds and self._pump.free < 1:
            self.end_all()

    # ---- ending

    def end_all(self) -> None:
        for lane in self._reading:
            self.end(lane)

    def end(self, lane: Lane) -> None:
        """End a lane's read, so that the next one waits for jobs of the right partitions."""
        reader = self._readers.get(lane)
        if reader is None or not lane.reading:
            return
        lane.reading = []
        if lane not in self._unblocking:
            task = asyncio.get_running_loop().create_task(self._try(lane, reader.unblock()))
            self._unblocking[lane] = task
            task.add_done_callback(lambda _: self._unblocking.pop(lane, None))

    async def _try(self, lane: Lane, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except Exception as error:
            self._pump.lose(lane, error)

    async def close(self) -> None:
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
