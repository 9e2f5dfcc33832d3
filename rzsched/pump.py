"""The pump keeps a worker's slots filled: it settles the runs that ended and claims the next ones.

When busy, one call to a partition settles what ended there and claims as many new jobs as there are free slots. Up to
two round trips are under way at once, so that the server works while handlers run. A partition is `hot` while its
claims come back full. When none is, a blocking read holds one slot and waits (see `idle`).

In a cluster each partition has round trips of its own, so that a node which is away holds up nobody else's jobs (see
`posts.Lane`). A round trip whose answer was lost is made good before anything more is claimed there (see `regaining`).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from rzsched import calls
from rzsched.calls import Claimed, Claims, Outcome
from rzsched.idle import IdleReads
from rzsched.keys import Partition
from rzsched.leaving import leave
from rzsched.links import AnyAsyncLink
from rzsched.offers import MOST_OFFERED, Filling, Offer
from rzsched.posts import MOST_CLAIMED, Lane, Post, look_at_cold, share_slots
from rzsched.reader import Delivery
from rzsched.regaining import Regaining

T = TypeVar("T")
MOST_IN_FLIGHT = 2
CLOSING_RETRY_S = 0.2
Part = tuple[Post, list[Outcome], int]
"""One partition's part of a round trip: what to settle, and how many jobs to claim at most."""


class Pump:
    """Settle and claim for one worker, on its loop.

    `begin(place, claimed, sent)` takes what was claimed by a call sent at that monotonic second, `note` what the server
    said of a finish, `rejoin` makes partitions ready again, `known` gives the fences of what runs here, by partition.
    `settled(outcomes)` is told what the server has taken: until then the leases are still to be kept.
    """

    def __init__(self, link: AnyAsyncLink, worker: str, lease_ms: int, concurrency: int, *,
                 begin: Callable[[Partition, list[Claimed], float], None],
                 note: Callable[[Partition, str, str], None],
                 may_claim: Callable[[], bool], known: Callable[[], dict[Partition, list[str]]],
                 rejoin: Callable[[Iterable[Partition]], Coroutine[Any, Any, None]],
                 settled: Callable[[list[Outcome]], None]) -> None:
        self._link = link
        self._worker, self._lease_ms = worker, lease_ms
        self._begin, self._note, self._may_claim, self._settled = begin, note, may_claim, settled
        self.posts: dict[Partition, Post] = {}
        self._lanes: dict[Partition | None, Lane] = {}
        self._loop = asyncio.get_running_loop()
        self._slots = self.free = concurrency
        self.half = max(1, concurrency // 2)
        self.kick = asyncio.Event()
        self.room = asyncio.Event()
        self.closing = False
        self._in_flight: set[asyncio.Task[None]] = set()
        self._regaining = Regaining(link, worker, known=known, rejoin=rejoin, lanes=self._lanes,
                                    regained=self.wake)
        self.reads = IdleReads(link, worker, lease_ms / 1000, self, self._regaining, rejoin=rejoin)
        self._reading: list[asyncio.Task[None]] | None = None

    def add(self, place: Partition, weight: int) -> None:
        """Work on a partition too; nothing changes where it is known already."""
        if place in self.posts:
            return
        post = self.posts[place] = Post(place, weight)
        (lane := self._lane_of(post)).posts.append(post)
        if len(lane.posts) > 1:
            self.reads.end(lane)  # the next read waits there too
        elif self._reading is not None:
            self._reading.append(asyncio.create_task(self.reads.run(lane)))
        self.wake()

    def _lane_of(self, post: Post) -> Lane:
        key = post.place if self._link.apart else None
        if key not in self._lanes:
            self._lanes[key] = Lane()
        return self._lanes[key]

    # ---- what others say

    def settle(self, place: Partition, outcome: Outcome) -> None:
        """Take the outcome of a run, to be settled with the next call. Its slot is not freed by this."""
        self.posts[place].outcomes.append(outcome)

    def wake(self) -> None:
        self.kick.set()
        self.room.set()

    def close(self) -> None:
        """Claim no more; what ends is still settled."""
        self.closing = True
        self.wake()

    @property
    def is_quiet(self) -> bool:
        return not self._in_flight

    @property
    def claims(self) -> bool:
        return not self.closing and self._may_claim()

    # ---- busy

    async def run(self) -> None:
        """Settle and claim whenever there is something to, until closed."""
        self.kick.set()
        while not self.closing:
            await self.kick.wait()
            self.kick.clear()
            self.launch()

    async def read_when_idle(self) -> None:
        """Wait for jobs by blocking reads whenever there is nothing to claim."""
        self._reading = [asyncio.create_task(self.reads.run(lane)) for lane in self._lanes.values()]
        try:
            while True:
                done, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                self._reading = [task for task in self._reading if not task.done()]
                if not self._reading:
                    return
        finally:
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)

    def launch(self) -> None:
        """Begin the round trips that are worth it now."""
        while True:
            trips: dict[Lane, list[Part]] = {}
            for part in self._next_parts():
                trips.setdefault(self._lane_of(part[0]), []).append(part)
            for lane, parts in trips.items():
                self._track(lane, self._exchange(lane, parts))
            if not trips:
                break
        if self.claims and any(post.hot and not post.lost for post in self.posts.values()):
            self.reads.free_the_slot()  # else it is kept from where there is work

    def _is_ready(self, lane: Lane) -> bool:
        """Say whether a lane is worth another round trip; what ended meanwhile travels with the next one."""
        if not lane.in_flight:
            return True
        return len(lane.in_flight) < MOST_IN_FLIGHT and lane.waiting >= max(1, self.half // len(self._lanes))

    def _next_parts(self) -> list[Part]:
        claims = self.claims
        if claims and self.free > 0:
            look_at_cold(self.posts.values())
        ready = [post for lane in self._lanes.values() if self._is_ready(lane) for post in lane.posts if not post.lost]
        posts = [post for post in ready if post.outcomes or (claims and post.hot)]
        parts: list[Part] = []
        for post, limit in zip(posts, share_slots(posts, self.free if claims else 0), strict=True):
            if post.outcomes or limit:
                outcomes, post.outcomes = post.outcomes[:MOST_CLAIMED], post.outcomes[MOST_CLAIMED:]
                parts.append((post, outcomes, limit))
                self.free -= limit
        return parts

    async def _exchange(self, lane: Lane, parts: list[Part]) -> None:
        steps = [
            calls.finish(post.place, self._worker, self._lease_ms, limit, post.fair_priority(limit), outcomes)
            for post, outcomes, limit in parts
        ]
        sent = time.monotonic()
        answers = await self._answer(lane, parts, self._link.execute(steps))
        if answers is None:
            return
        for (post, outcomes, limit), answer in zip(parts, answers, strict=True):
            self._settled(outcomes)
            for job_id, note in answer.notes.items():
                self._note(post.place, job_id, note)
            self._take(lane, post, answer.claimed, limit, sent)
        # Before the kick, else the pump still counts this one as under way, and what ended meanwhile waits for ever.
        self._landed(lane, asyncio.current_task())
        self.kick.set()

    async def _answer(self, lane: Lane, parts: list[Part], answer: Awaitable[T]) -> T | None:
        """Wait for the answer to a round trip; None where it is lost."""
        try:
            told = await answer
        except Exception as error:  # RzschedError, or an answer that cannot be read: jobs may hang on it all the same
            for post, outcomes, limit in parts:
                post.outcomes[:0] = outcomes
                self.free += limit
            self.lose(lane, error)
            return None
        self._regaining.serves()
        return told

    def _take(self, lane: Lane, post: Post, claimed: Claims, limit: int, sent: float) -> None:
        self.free += limit - len(claimed)
        is_open_again = post.take_answer(claimed, limit, self._look)
        turned = is_open_again or post.shut is not None
        if lane.reading and turned and (post.place in lane.reading) != is_open_again:
            self.reads.end(lane)  # the next one waits where posts are open, and only there
        if claimed:
            self._begin(post.place, claimed, sent)
        if self.free > 0:
            self.room.set()

    # ---- held up by limits

    def _look(self, post: Post) -> None:
        """Ask a post that may have been shut, even if the blocking read at the others has the only free slot."""
        self.reads.free_the_slot()
        post.open()
        post.hot = True
        self.kick.set()

    def hear_gate(self, channel: str, word: str) -> None:
        """Heed what the gate of a partition says: a place got free, the limits changed, or the queue is paused."""
        for post in self.posts.values():
            if post.place.gate_channel == channel:
                if word == "PAUSED" and post.place in (lane := self._lane_of(post)).reading:
                    self.reads.end(lane)  # else it would take a job, to give it back
                self._look(post)

    def look_at_all(self) -> None:
        """Ask everywhere: the gates may have spoken unheard."""
        for post in self.posts.values():
            self._look(post)

    # ---- filled by the scheduler beside this worker

    @property
    def is_idle(self) -> bool:
        """Say whether nothing runs here; any thread may ask, to be told what may just have changed."""
        return self.free + self.reads.holds == self._slots

    def ask(self, place: Partition) -> Offer | None:
        """Ask for free slots to claim due jobs with; on the scheduler's thread."""
        if not self.is_idle:
            return None
        offer = Offer(place, self._worker, self._lease_ms, self._loop)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has left
            self._loop.call_soon_threadsafe(self._give, offer)
        return offer

    def _give(self, offer: Offer) -> None:
        """Give some slots, if all is quiet. The others are for what comes meanwhile, should the scheduler be slow."""
        post, slots = self.posts.get(offer.place), min(self.free // 2, MOST_OFFERED)
        if post is None or post.lost or post.shut is not None or not (self.claims and self.is_idle and slots):
            return
        self.free -= slots
        lane = self._lane_of(post)
        self._track(lane, self._fill(lane, post, slots, offer.give(slots)))

    async def _fill(self, lane: Lane, post: Post, slots: int, filling: Awaitable[Filling]) -> None:
        filled = await self._answer(lane, [(post, [], slots)], filling)
        if filled is not None:
            claimed, sent = filled
            self._take(lane, post, claimed, slots, sent)
            self._landed(lane, asyncio.current_task())
            self.kick.set()

    # ---- idle

    def _track(self, lane: Lane, round_trip: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Begin a round trip that may claim: regaining the link waits for it."""
        task = asyncio.get_running_loop().create_task(round_trip)
        self._in_flight.add(task)
        lane.in_flight.add(task)
        task.add_done_callback(lambda done: self._landed(lane, done))
        return task

    def _landed(self, lane: Lane, task: Any) -> None:
        for flights in (self._in_flight, lane.in_flight):
            flights.discard(task)

    async def claim_delivered(self, lane: Lane, deliveries: list[Delivery], share: int) -> None:
        """Claim what a read brought, and more of the same partitions, with one `share`th of the free slots at most."""
        await self._track(lane, self._claim_delivered(lane, deliveries, share))

    async def _claim_delivered(self, lane: Lane, deliveries: list[Delivery], share: int) -> None:
        entries: dict[Partition, list[str]] = {}
        for delivery in deliveries:
            entries.setdefault(delivery.place, []).extend(delivery.entries)
        parts: list[Part] = []
        for place in entries:
            # While cut off from its leases a worker begins nothing: what the read brought goes back.
            may = self._may_claim() and not self.closing
            limit = min(-(-max(self.free, 0) // share), MOST_CLAIMED) if may else 0
            self.free -= limit
            parts.append((self.posts[place], [], limit))
        steps = [
            calls.claim(post.place, self._worker, self._lease_ms, limit, "", entries[post.place])
            for post, _, limit in parts
        ]
        sent = time.monotonic()
        answers = await self._answer(lane, parts, self._link.execute(steps))
        if answers is None:
            return
        for (post, _, limit), claimed in zip(parts, answers, strict=True):
            self._take(lane, post, claimed, limit, sent)

    # ---- cut off, leaving

    def lose(self, lane: Lane, error: Exception) -> None:
        """Have a lane regained whose round trip failed."""
        if self.closing:
            asyncio.get_running_loop().call_later(CLOSING_RETRY_S, self.kick.set)
        else:
            self._regaining.lose(lane, error)

    async def leave(self, limit_s: float) -> None:
        """Settle what is left and hand back all that is pending here; without a server, for `limit_s` seconds."""
        self._regaining.cancel()
        await leave(self._link, self._worker, self._lease_ms, self._lanes.values(), self._in_flight, limit_s)
