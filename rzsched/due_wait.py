"""Waiting for what is due next in a partition, by a timer here, since a blocking read on the server wakes late."""

import asyncio
import contextlib
import time

from rzsched.aim import Aim
from rzsched.calls import Promotion
from rzsched.offers import Asking
from rzsched.patience import pause

COLD_S = 0.02
WARM_S = 0.005
"""After a longer sleep everything on the way is cold, which costs more than the way itself: so the first look comes
early, finds nothing due, and the next one, timed by its answer, is fast."""
ON_THE_WAY_S = 0.0001
"""How much earlier than its instant a schedule is fired, by the clock here: what decides it must not reach the server
too early. A look at jobs may, for there the server decides (see `aim`)."""
TIMER_S = 0.002
"""The loop's timers are rounded up to whole ms. So the last bit is slept on this thread, which runs no handlers."""
FIRING_GAP_S = 0.01
"""Schedules that follow each other more closely than this are fired together; one by itself is fired to the ms."""


class DueWait:
    """The waits between looks at one partition. `hear` ends one early, for what is due before all that was known.

    Shortly before an instant it begins `asking` for slots to claim what will be due.
    """

    def __init__(self, idle_s: float, asking: Asking) -> None:
        self._idle_s = idle_s
        self._asking = asking
        self._wake = asyncio.Event()
        self._until_ms = float("inf")
        self._fires_from_s = 0.0
        self._aim = Aim()

    def looking(self) -> None:
        """Begin a look: until its answer is here, any earlier job may be news."""
        self._wake.clear()
        self._until_ms = float("inf")

    def looked(self, promotion: Promotion, *, has_fired: bool) -> None:
        self._aim.heard(promotion.now_us)
        if promotion.count:
            self._asking.end()  # it came too late, or is refused: the next job may meet with an idle worker
        if has_fired:
            self._fires_from_s = asyncio.get_running_loop().time() + FIRING_GAP_S

    def hear(self, earliest_ms: float) -> None:
        if earliest_ms < self._until_ms:
            self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def until_due(self, promotion: Promotion) -> None:
        """Wait for the next instant, at most `idle_s`."""
        wait_s = self._idle_s
        if promotion.held_by:
            wait_s = min(wait_s, max(promotion.held_ms, 1) / 1000)
        self._until_ms = float("inf")
        gap_s = self._fires_from_s - asyncio.get_running_loop().time()
        for due_ms, least_s in ((promotion.next_run_at_ms, 0.0), (promotion.next_fire_ms, gap_s)):
            if due_ms is not None:
                wait_s = min(wait_s, max(0.0, least_s, due_ms / 1000 - promotion.now_us / 1_000_000))
                self._until_ms = min(self._until_ms, due_ms)
        job_ms = promotion.next_run_at_ms
        is_for_jobs = job_ms == self._until_ms and job_ms != promotion.next_fire_ms
        due, is_cold = time.monotonic() + wait_s, wait_s > COLD_S
        if is_cold:
            self._asking.end()
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the wake-up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wait_s - (WARM_S if is_cold else TIMER_S))):
                await self._wake.wait()
                return
        if is_for_jobs:
            self._asking.begin()
        lead_s = self._aim.lead_s if is_for_jobs else ON_THE_WAY_S
        if not is_cold and (left := due - time.monotonic() - lead_s) > 0:
            pause(left)
            self._aim.take(job_ms if is_for_jobs else None)
