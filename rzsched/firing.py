"""Firing schedules: read what is due, decide, and have one script for each schedule commit it.

Any number of schedulers may do this at once. `fire.lua` goes on only while `next` is what was read here, and an
occurrence's job id is made from schedule and instant, so whoever comes second changes nothing.
"""

import logging
from typing import Any, Protocol

from rzsched import calls, cron_calls, keys
from rzsched.calls import Call
from rzsched.cron_calls import Due, DueSchedule, Fired
from rzsched.keys import Partition
from rzsched.schedule import GRACE_MS, Firing, Occurrence, Timing, plan_firing, start_ms

_log = logging.getLogger("rzsched.scheduler")
BATCH = 200
UNREADABLE_MS = 60_000
MOST_GRACE_MS = 60_000
"""However long a scheduler has run, an instant this late was missed."""


class Link(Protocol):
    async def execute(self, steps: Any) -> list[Any]: ...


async def fire_due(link: Link, namespace: str, place: Partition, *, grace_ms: int = GRACE_MS, now_ms: str = "",
                   limit: int = BATCH) -> int:
    """Fire a batch of due schedules; give how many were due: there may be more where that is the limit."""
    found: Due
    (found,) = await link.execute([cron_calls.due(place, limit, now_ms)])
    if not found.schedules:
        return 0
    steps = [fire_call(place, schedule, found.now_ms, grace_ms, now_ms) for schedule in found.schedules]
    stopping = [pair for each in await link.execute(steps) if isinstance(each, Fired) for pair in each.stopping]
    if stopping:
        await link.execute([
            calls.command("PUBLISH", keys.worker_channel(namespace, worker), job_id, read=int)
            for worker, job_id in stopping
        ])  # fmt: skip
    return len(found.schedules)


def fire_call(place: Partition, schedule: DueSchedule, at_ms: int, grace_ms: int, now_ms: str = "") -> Call[Any]:
    """Decide what a due schedule fires at an instant of the server's clock."""
    read_next, timing = schedule.read_next, schedule.timing
    stored = int(read_next) if read_next.isascii() and read_next.isdecimal() else None
    try:
        if timing is None:
            raise ValueError("its fields are unreadable")
        firing: Firing = plan_firing(timing, stored, at_ms, grace_ms)
    except (ValueError, AssertionError, OverflowError) as error:  # a foreign hand wrote it; the others go on
        _log.error("schedule not fired schedule=%s reason=%s", schedule.id, error)
        return cron_calls.postpone(place, schedule.id, at_ms + UNREADABLE_MS)
    told = [_told(timing, schedule.id, occurrence) for occurrence in firing.occurrences]
    return cron_calls.fire(place, schedule.id, read_next, firing.next_ms, firing.missed, told, now_ms)


def _told(timing: Timing, schedule_id: str, occurrence: Occurrence) -> tuple[int, str, str]:
    if occurrence.late:
        return occurrence.instant_ms, "", "fired late"
    return occurrence.instant_ms, str(start_ms(timing, schedule_id, occurrence.instant_ms)), "fired"


class Watch:
    """How long a scheduler has been looking without a break, by its own monotonic clock.

    An instant that came while it looked was not missed, only taken over from another scheduler that died.
    """

    def __init__(self, most_gap_s: float) -> None:
        self._most_gap_s = most_gap_s
        self._since_s = self._last_s = float("-inf")

    def looked(self, now_s: float) -> int:
        """Note a look; give the grace in ms."""
        if now_s - self._last_s > self._most_gap_s:
            self._since_s = now_s
        self._last_s = now_s
        return int(min(max(GRACE_MS, (now_s - self._since_s) * 1000), MOST_GRACE_MS))
