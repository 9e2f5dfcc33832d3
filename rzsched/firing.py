"""Firing schedules: read what is due, decide, and have one script for each schedule commit it.

Any number of schedulers may do this at once. `fire.lua` goes on only while `next` is what was read here, and an
occurrence's job id is made from schedule and instant, so whoever comes second changes nothing.
"""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from rzsched import calls, cron_calls, keys
from rzsched.calls import Call
from rzsched.cron_calls import Due, DueSchedule, Fired
from rzsched.keys import Partition
from rzsched.schedule import GRACE_MS, Firing, Occurrence, Timing, plan_firing, start_ms

_log = logging.getLogger("rzsched.scheduler")
BATCH = 100
AHEAD_MS = 1_000
UNREADABLE_MS = 60_000
MOST_GRACE_MS = 60_000
"""However long a scheduler has run, an instant this late was missed."""


class Link(Protocol):
    async def execute(self, steps: Any) -> list[Any]: ...


class Firer:
    """Fire the schedules of one partition.

    It reads a little ahead, so that firing costs one call a schedule and not a look at what is due before each. What
    has changed meanwhile the guard of the script refuses, and it is read anew.
    """

    def __init__(self, link: Link, namespace: str, place: Partition) -> None:
        self._link = link
        self._namespace = namespace
        self._place = place
        self._ahead: deque[DueSchedule] = deque()

    async def due_calls(self, server_ms: int, grace_ms: int, now_ms: str = "") -> list[Call[Any]]:
        """Give the calls that fire what is due by the server's clock, a batch at most."""
        found = self._take(server_ms)
        if not found:
            read: Due
            ahead_ms = 0 if now_ms else AHEAD_MS
            (read,) = await self._link.execute([cron_calls.due(self._place, BATCH, ahead_ms, now_ms)])
            server_ms = read.now_ms
            self._ahead = deque(sorted(read.schedules, key=_next_ms))
            # Where a score disagrees with its definition nothing may be due after all: firing nothing mends the score.
            found = self._take(server_ms) or read.schedules
        return [fire_call(self._place, schedule, server_ms, grace_ms, now_ms) for schedule in found]

    def known_calls(self, server_ms: int, grace_ms: int) -> list[Call[Any]]:
        """Give the calls for what was read ahead and is due by now, without asking."""
        return [fire_call(self._place, schedule, server_ms, grace_ms) for schedule in self._take(server_ms)]

    def _take(self, server_ms: int) -> list[DueSchedule]:
        found = []
        while self._ahead and _next_ms(self._ahead[0]) <= server_ms:
            found.append(self._ahead.popleft())
        return found

    async def settle(self, answers: Sequence[Any]) -> None:
        """Tell workers at once which runs are asked to stop."""
        stopping = [pair for each in answers if isinstance(each, Fired) for pair in each.stopping]
        if stopping:
            await self._link.execute([
                calls.publish(keys.worker_channel(self._namespace, worker), job_id)
                for worker, job_id in stopping
            ])  # fmt: skip


def _next_ms(schedule: DueSchedule) -> int:
    """One whose next instant is lost is due at once."""
    return int(schedule.read_next) if schedule.read_next.isascii() and schedule.read_next.isdecimal() else 0


async def fire_due(link: Link, namespace: str, place: Partition, *, grace_ms: int = GRACE_MS, now_ms: str = "") -> int:
    """Fire one batch of what is due; give how many schedules that were."""
    firer = Firer(link, namespace, place)
    steps = await firer.due_calls(0, grace_ms, now_ms)
    if steps:
        await firer.settle(await link.execute(steps))
    return len(steps)


def fire_call(place: Partition, schedule: DueSchedule, at_ms: int, grace_ms: int, now_ms: str = "") -> Call[Any]:
    """Decide what a due schedule fires at an instant of the server's clock."""
    read_next, timing = schedule.read_next, schedule.timing
    stored = _next_ms(schedule) or None
    try:
        if timing is None:
            raise ValueError("its fields are unreadable")
        firing: Firing = plan_firing(timing, stored, at_ms, grace_ms)
    except (ValueError, AssertionError, OverflowError) as error:  # a foreign hand wrote it; the others go on
        _log.error("schedule not fired schedule=%s reason=%s", schedule.id, error)
        return cron_calls.postpone(place, schedule.id, at_ms + UNREADABLE_MS)
    told = [_told(timing, schedule.id, occurrence) for occurrence in firing.occurrences]
    return cron_calls.fire(place, schedule.id, read_next, firing.next_ms, firing.missed, told, now_ms,
                           schedule.fingerprint)


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
