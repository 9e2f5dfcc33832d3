"""The pump keeps a worker's slots filled: it settles the runs that ended and claims the next ones.

When busy, one call to a partition settles what ended there and claims as many new jobs as there are free slots. Up to
two round trips are under way at once, so that the server works while handlers run. A partition is `hot` while its
claims come back full. When none is, a blocking read holds one slot and waits (see `reader`).

A round trip whose answer was lost may have claimed jobs that nobody here knows of. Then nothing more is claimed until
everything that is pending for this worker and unknown to it has been handed back, with no attempt used.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from rzsched import calls
from rzsched.calls import Claimed, Outcome
from rzsched.connect import AsyncLink, backoff_delays
from rzsched.errors import RzschedError
from rzsched.keys import Partition
from rzsched.reader import BlockingReader, Delivery, GroupsGone

_log = logging.getLogger("rzsched.worker")
MOST_CLAIMED = 500
"""Jobs in one call, which bounds how long a script holds the server."""
MOST_IN_FLIGHT = 2
COLD_S = 0.02
"""How often a busy worker asks a partition that had nothing."""
CLOSING_RETRY_S = 0.2
FAIR_SLOTS = 8
"""Of this many slots one goes to a priority whose turn it is, so that none starves."""


@dataclass(slots=True, eq=False)
class Post:
    """A worker's work on one partition: what ended there and is not yet settled, and whether there is more to claim."""

    place: Partition
    weight: int
    hot: bool = True
    outcomes: list[Outcome] = field(default_factory=list)
    slot_credit: float = 0.0
    fair_credit: int = 0
    fair_turn: int = 0
    asked_at: float = 0.0


Part = tuple[Post, list[Outcome], int]
"""One partition's part of a round trip: what to settle, and how many jobs to claim at most."""


class Pump:
    """Settle and claim for one worker, on its loop.

    `begin(place, claimed, sent)` takes what was claimed by a call sent at that monotonic second, `note` what the server
    said of a finish, `rejoin` makes the partitions ready again, `known` names the jobs this worker runs, by partition.
    """

    def __init__(self, link: AsyncLink, worker: str, lease_ms: int, concurrency: int, *,
                 begin: Callable[[Partition, list[Claimed], float], None],
                 note: Callable[[Partition, str, str], None],
                 may_claim: Callable[[], bool], known: Callable[[], dict[Partition, list[str]]],
                 rejoin: Callable[[], Any]) -> None:
        self._link = link
        self._worker = worker
        self._lease_ms = lease_ms
        self._begin = begin
        self._note = note
        self._may_claim = may_claim
        self._known = known
        self._rejoin = rejoin
        self.posts: dict[Partition, Post] = {}
        self.free = concurrency
        self.half = max(1, concurrency // 2)
        self.kick = asyncio.Event()
        self.room = asyncio.Event()
        self.closing = False
        self._in_flight: set[asyncio.Task[None]] = set()
        self._regaining: asyncio.Task[None] | None = None
        self._trouble: Iterator[float] | None = None  # the waits between tries, from a failure to the next success

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
    def _claims(self) -> bool:
        return not self.closing and self._regaining is None and self._may_claim()

    # ---- busy

    async def run(self) -> None:
        """Settle and claim whenever there is something to, until closed."""
        self.kick.set()
        while not self.closing:
            await self.kick.wait()
            self.kick.clear()
            self.launch()

    def launch(self) -> None:
        """Begin the round trips that are worth it now."""
        while len(self._in_flight) < MOST_IN_FLIGHT and self._regaining is None:
            if self._in_flight and sum(len(post.outcomes) for post in self.posts.values()) < self.half:
                return  # what ended meanwhile travels with the next one
            parts = self._next_parts()
            if not parts:
                return
            self._track(self._exchange(parts))

    def _next_parts(self) -> list[Part]:
        claims = self._claims
        if claims and self.free > 0:
            self._look_at_cold()
        posts = [post for post in self.posts.values() if post.outcomes or (claims and post.hot)]
        limits = self._share_slots(posts) if claims else [0] * len(posts)
        parts: list[Part] = []
        for post, limit in zip(posts, limits, strict=True):
            if post.outcomes or limit:
                outcomes, post.outcomes = post.outcomes[:MOST_CLAIMED], post.outcomes[MOST_CLAIMED:]
                parts.append((post, outcomes, limit))
                self.free -= limit
        return parts

    def _look_at_cold(self) -> None:
        """Ask the other partitions now and then while one is hot, for then no blocking read waits for their jobs."""
        now = time.monotonic()
        if any(post.hot for post in self.posts.values()):
            for post in self.posts.values():
                post.hot = post.hot or now - post.asked_at >= COLD_S
        for post in self.posts.values():
            if post.hot:
                post.asked_at = now

    def _share_slots(self, posts: list[Post]) -> list[int]:
        """Deal the free slots out by weight; what rounding takes from a post now, it gets later."""
        free, total = max(self.free, 0), sum(post.weight for post in posts)
        for post in posts:
            post.slot_credit += free * post.weight / total
        limits = dict.fromkeys(posts, 0)
        for post in sorted(posts, key=lambda post: post.slot_credit, reverse=True):
            limits[post] = share = min(MOST_CLAIMED, free, max(0, math.ceil(post.slot_credit)))
            free -= share
            post.slot_credit = min(post.slot_credit - share, post.weight)
        return list(limits.values())

    def _fair_turn(self, post: Post, limit: int) -> str:
        """Say which priority goes first for one slot, once in FAIR_SLOTS slots; '' for none."""
        post.fair_credit += limit
        if limit == 0 or post.fair_credit < FAIR_SLOTS:
            return ""
        post.fair_credit = 0
        post.fair_turn += 1
        return str(1 + post.fair_turn % 9)

    async def _exchange(self, parts: list[Part]) -> None:
        steps = [
            calls.finish(post.place, self._worker, self._lease_ms, limit, self._fair_turn(post, limit), outcomes)
            for post, outcomes, limit in parts
        ]
        sent = time.monotonic()
        try:
            answers = await self._link.execute(steps)
        except Exception as error:  # RzschedError, or an answer that cannot be read: jobs may hang on it all the same
            self._take_back(parts)
            self._lose_link(error)
            return
        self._link_serves()
        for (post, _, limit), answer in zip(parts, answers, strict=True):
            for job_id, note in answer.notes.items():
                self._note(post.place, job_id, note)
            self._take(post, answer.claimed, limit, sent)
        # Before the kick, else the pump still counts this one as under way, and what ended meanwhile waits for ever.
        self._in_flight.discard(asyncio.current_task())
        self.kick.set()

    def _take(self, post: Post, claimed: list[Claimed], limit: int, sent: float) -> None:
        self.free += limit - len(claimed)
        if limit > 0:
            post.hot = len(claimed) >= limit
        if claimed:
            self._begin(post.place, claimed, sent)
        if self.free > 0:
            self.room.set()

    def _take_back(self, parts: list[Part]) -> None:
        for post, outcomes, limit in parts:
            post.outcomes[:0] = outcomes
            self.free += limit

    # ---- idle

    async def read_when_idle(self, reader: BlockingReader) -> None:
        """Wait for jobs by a blocking read whenever there is nothing to claim and a slot to run one in."""
        while not self.closing:
            idle = self.free >= 1 and self._claims and not any(post.hot for post in self.posts.values())
            if not idle:
                self.room.clear()
                await self.room.wait()
                continue
            self.free -= 1  # the slot of what the read will bring
            try:
                deliveries = await reader.read(list(self.posts))
            except GroupsGone:
                deliveries = []
                await self._try(self._rejoin)
            except Exception as error:
                deliveries = []
                self._lose_link(error)
            finally:
                self.free += 1
            # What was pending here when the link was lost is being handed back: only what then is left counts.
            while self._regaining is not None and not self._regaining.done():
                await asyncio.wait({self._regaining})
            if deliveries:
                await self._track(self._claim_delivered(deliveries))
            self.kick.set()

    def _track(self, round_trip: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Begin a round trip that may claim: regaining the link waits for it."""
        task = asyncio.get_running_loop().create_task(round_trip)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    async def _try(self, step: Callable[[], Any]) -> None:
        try:
            await step()
        except Exception as error:
            self._lose_link(error)

    async def _claim_delivered(self, deliveries: list[Delivery]) -> None:
        """Claim what a read brought, and more of the same partitions; what there is no slot for goes back."""
        entries: dict[Partition, list[str]] = {}
        for delivery in deliveries:
            entries.setdefault(delivery.place, []).extend(delivery.entries)
        parts: list[Part] = []
        for place in entries:
            limit = 0 if self.closing else min(max(self.free, 0), MOST_CLAIMED)
            self.free -= limit
            parts.append((self.posts[place], [], limit))
        steps = [
            calls.claim(post.place, self._worker, self._lease_ms, limit, "", entries[post.place])
            for post, _, limit in parts
        ]
        sent = time.monotonic()
        try:
            answers = await self._link.execute(steps)
        except Exception as error:
            self._take_back(parts)
            self._lose_link(error)
            return
        self._link_serves()
        for (post, _, limit), claimed in zip(parts, answers, strict=True):
            self._take(post, claimed, limit, sent)

    # ---- cut off

    def _lose_link(self, error: Exception) -> None:
        if self.closing:
            asyncio.get_running_loop().call_later(CLOSING_RETRY_S, self.kick.set)
        elif self._regaining is None:
            if self._trouble is None:
                foreign = None if isinstance(error, RzschedError) else error
                _log.warning("the server is away: %s", error, exc_info=foreign)
                self._trouble = backoff_delays(float("inf"))
            self._regaining = asyncio.get_running_loop().create_task(self._regain_link(self._trouble))

    def _link_serves(self) -> None:
        if self._trouble is not None:
            _log.info("the server is back")
            self._trouble = None

    async def _regain_link(self, delays: Iterator[float]) -> None:
        for delay in delays:
            await asyncio.sleep(delay)
            # A round trip still under way may yet bring jobs: then they are known, and must not be handed back.
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            known = self._known()
            for place, post in self.posts.items():
                known.setdefault(place, []).extend(outcome[1] for outcome in post.outcomes)
            try:
                await self._rejoin()
                await self._link.execute([calls.release(place, self._worker, ids) for place, ids in known.items()])
                break
            except Exception as error:
                _log.debug("still without the server: %s", error)
        self._regaining = None
        for post in self.posts.values():
            post.hot = True
        self.wake()

    # ---- leaving

    async def leave(self, limit_s: float) -> None:
        """Settle what is left and hand back all that is pending here; without a server, for `limit_s` seconds."""
        if self._regaining is not None:
            self._regaining.cancel()
        for delay in backoff_delays(limit_s):
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            steps: list[Any] = []
            for post in self.posts.values():
                if post.outcomes:
                    steps.append(calls.finish(post.place, self._worker, self._lease_ms, 0, "", post.outcomes))
                steps.append(calls.release(post.place, self._worker, leave=True))
            try:
                await self._link.execute(steps)
                return
            except Exception as error:
                _log.warning("leaving is delayed: %s", error)
            await asyncio.sleep(delay)
        _log.error("left without the server: other workers recover this one's jobs when their leases end")
