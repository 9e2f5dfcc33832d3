"""The pump keeps a worker's slots filled: it settles the runs that ended and claims the next ones.

When busy, one call to a partition settles what ended there and claims as many new jobs as there are free slots. Up to
two round trips are under way at once, so that the server works while handlers run. A partition is `hot` while its
claims come back full. When none is, a blocking read holds one slot and waits (see `reader`).

A round trip whose answer was lost may have claimed jobs that nobody here knows of. Then nothing more is claimed until
everything that is pending for this worker and unknown to it has been handed back, with no attempt used.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from rzsched import calls
from rzsched.calls import Claimed, Claims, Outcome
from rzsched.connect import backoff_delays
from rzsched.errors import RzschedError
from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink
from rzsched.posts import MOST_CLAIMED, Post, look_at_cold, share_slots
from rzsched.reader import BlockingReader, Delivery, GroupsGone

_log = logging.getLogger("rzsched.worker")
MOST_IN_FLIGHT = 2
CLOSING_RETRY_S = 0.2
Part = tuple[Post, list[Outcome], int]
"""One partition's part of a round trip: what to settle, and how many jobs to claim at most."""


class Pump:
    """Settle and claim for one worker, on its loop.

    `begin(place, claimed, sent)` takes what was claimed by a call sent at that monotonic second, `note` what the server
    said of a finish, `rejoin` makes the partitions ready again, `known` names the jobs this worker runs, by partition.
    `settled(outcomes)` is told what the server has taken: until then the leases are still to be kept.
    """

    def __init__(self, link: AnyAsyncLink, worker: str, lease_ms: int, concurrency: int, *,
                 begin: Callable[[Partition, list[Claimed], float], None],
                 note: Callable[[Partition, str, str], None],
                 may_claim: Callable[[], bool], known: Callable[[], dict[Partition, list[str]]],
                 rejoin: Callable[[], Any], settled: Callable[[list[Outcome]], None]) -> None:
        self._link = link
        self._worker = worker
        self._lease_ms = lease_ms
        self._begin = begin
        self._note = note
        self._may_claim = may_claim
        self._known = known
        self._rejoin = rejoin
        self._settled = settled
        self.posts: dict[Partition, Post] = {}
        self.free = concurrency
        self.half = max(1, concurrency // 2)
        self.kick = asyncio.Event()
        self.room = asyncio.Event()
        self.closing = False
        self._in_flight: set[asyncio.Task[None]] = set()
        self._regaining: asyncio.Task[None] | None = None
        self._reader: BlockingReader | None = None
        self._read_places: list[Partition] = []  # where the blocking read that is under way waits
        self._unblocking: asyncio.Task[None] | None = None
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
            look_at_cold(self.posts.values())
        posts = [post for post in self.posts.values() if post.outcomes or (claims and post.hot)]
        limits = share_slots(posts, self.free) if claims else [0] * len(posts)
        parts: list[Part] = []
        for post, limit in zip(posts, limits, strict=True):
            if post.outcomes or limit:
                outcomes, post.outcomes = post.outcomes[:MOST_CLAIMED], post.outcomes[MOST_CLAIMED:]
                parts.append((post, outcomes, limit))
                self.free -= limit
        return parts

    async def _exchange(self, parts: list[Part]) -> None:
        steps = [
            calls.finish(post.place, self._worker, self._lease_ms, limit, post.fair_priority(limit), outcomes)
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
        for (post, outcomes, limit), answer in zip(parts, answers, strict=True):
            self._settled(outcomes)
            for job_id, note in answer.notes.items():
                self._note(post.place, job_id, note)
            self._take(post, answer.claimed, limit, sent)
        # Before the kick, else the pump still counts this one as under way, and what ended meanwhile waits for ever.
        self._in_flight.discard(asyncio.current_task())
        self.kick.set()

    def _take(self, post: Post, claimed: Claims, limit: int, sent: float) -> None:
        self.free += limit - len(claimed)
        if post.take_answer(claimed, limit, self._look):
            self._read_with(post)
        elif post.shut is not None and post.place in self._read_places:
            self._end_read()
        if claimed:
            self._begin(post.place, claimed, sent)
        if self.free > 0:
            self.room.set()

    # ---- held up by limits

    def _look(self, post: Post) -> None:
        """Ask a post that may have been shut, even if the blocking read at the others has the only free slot."""
        if self._read_places and self.free < 1:
            self._end_read()
        post.open()
        post.hot = True
        self.kick.set()

    def hear_gate(self, channel: str, word: str) -> None:
        """Heed what the gate of a partition says: a place got free, the limits changed, or the queue is paused."""
        for post in self.posts.values():
            if post.place.gate_channel == channel:
                if word == "PAUSED" and post.place in self._read_places:
                    self._end_read()  # else it would take a job, to give it back
                self._look(post)

    def look_at_all(self) -> None:
        """Ask everywhere: the gates may have spoken unheard."""
        for post in self.posts.values():
            self._look(post)

    def _read_with(self, post: Post) -> None:
        """Have the blocking read wait for a post that is open again too."""
        if self._read_places and post.place not in self._read_places:
            self._end_read()

    def _end_read(self) -> None:
        """End the blocking read, so that the next one waits for jobs of the right partitions."""
        self._read_places = []
        if self._reader is not None and self._unblocking is None:
            self._unblocking = asyncio.get_running_loop().create_task(self._try(self._reader.unblock))
            self._unblocking.add_done_callback(self._forget_unblocking)

    def _forget_unblocking(self, _: "asyncio.Task[None]") -> None:
        self._unblocking = None

    def _take_back(self, parts: list[Part]) -> None:
        for post, outcomes, limit in parts:
            post.outcomes[:0] = outcomes
            self.free += limit

    # ---- idle

    async def read_when_idle(self, reader: BlockingReader) -> None:
        """Wait for jobs by a blocking read whenever there is nothing to claim and a slot to run one in."""
        self._reader = reader
        while not self.closing:
            places = self._idle_places()
            if not places:
                self.room.clear()
                await self.room.wait()
                continue
            self.free -= 1  # the slot of what the read will bring
            try:
                self._read_places = places
                deliveries = await reader.read(places)
            except GroupsGone:
                deliveries = []
                await self._try(self._rejoin)
            except Exception as error:
                deliveries = []
                self._lose_link(error)
            finally:
                self._read_places = []
                self.free += 1
            # What was pending here when the link was lost is being handed back: only what then is left counts.
            while self._regaining is not None and not self._regaining.done():
                await asyncio.wait({self._regaining})
            if deliveries:
                await self._track(self._claim_delivered(deliveries))
            self.kick.set()

    def _idle_places(self) -> list[Partition]:
        """Say where to wait for jobs, if nothing is hot; what a shut post brought would only be given back."""
        if self.free < 1 or not self._claims or any(post.hot for post in self.posts.values()):
            return []
        return [post.place for post in self.posts.values() if post.shut is None]

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
