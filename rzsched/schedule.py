"""What a schedule is: its definition, checked, written as plain text and read back, and what is due of it. Pure.

A nominal instant is a whole ms since the epoch and names the occurrence; jitter moves only its start. What is due is
decided from the stored next instant and the server's time alone, so every scheduler decides the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha1
from typing import NamedTuple
from zlib import crc32

from rzsched.config import Seconds, seconds
from rzsched.cron import CronSchedule, EverySchedule, parse_cron
from rzsched.options import LAST_MS, LONGEST_DELAY_S, run_at_text

OVERLAPS = ("skip", "wait", "coalesce", "cancel", "allow")
MISFIRES = ("skip", "once", "all")
TIMING_FIELDS = ("cron", "every", "tz", "dst_gap", "dst_fold", "overlap", "misfire", "misfire_limit", "misfire_window",
                 "jitter", "start", "end")
"""The fields of a schedule's hash that say when it is due; absent ones have their defaults."""
MOST_AT_ONCE = 100
"""Occurrences on time that one firing writes; what is left is due at once again."""
GRACE_MS = 1000
"""How late an instant may be and still count as on time, for a scheduler that has just started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule is due, and what happens when it was missed or still runs. Durations are ms."""

    cron: str | None = None
    every_ms: int | None = None
    tz: str = "UTC"
    dst_gap: str = "after"
    dst_fold: str = "first"
    overlap: str = "skip"
    misfire: str = "once"
    misfire_limit: int = 100
    misfire_window_ms: int | None = None
    jitter_ms: int = 0
    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def times(self) -> CronSchedule | EverySchedule:
        """An interval counts from `start`, else from the epoch, so that every node has the same grid."""
        if self.cron is not None:
            return parse_cron(self.cron, self.tz, self.dst_gap, self.dst_fold)
        assert self.every_ms is not None
        return EverySchedule(self.every_ms / 1000, self.start_ms or 0)

    def next_after(self, after_ms: int) -> int | None:
        """Return the first instant strictly after one, from `start` to `end`, both included."""
        low = after_ms if self.start_ms is None else max(after_ms, self.start_ms - 1)
        found = self.times.next_after(low)
        if found is None or found > LAST_MS or (self.end_ms is not None and found > self.end_ms):
            return None
        return found

    def instants(self, first_ms: int, last_ms: int, limit: int) -> list[int]:
        """Return the instants in [first, last], at most `limit` of them, oldest first."""
        found: list[int] = []
        instant = self.next_after(first_ms - 1)
        while instant is not None and instant <= last_ms and len(found) < limit:
            found.append(instant)
            instant = self.next_after(instant)
        return found

    def in_words(self) -> str:
        return self.times.in_words()

    def fields(self) -> dict[str, str]:
        """Write it as plain text; what has its default is left out."""
        told = dict(zip(TIMING_FIELDS, self._values(), strict=True))
        plain = dict(zip(TIMING_FIELDS, Timing()._values(), strict=True))
        return {name: str(value) for name, value in told.items() if value != plain[name]}

    def _values(self) -> tuple[str | int | None, ...]:
        return (self.cron, self.every_ms, self.tz, self.dst_gap, self.dst_fold, self.overlap, self.misfire,
                self.misfire_limit, self.misfire_window_ms, self.jitter_ms, self.start_ms, self.end_ms)


@lru_cache(maxsize=32_768)
def read_timing(values: tuple[bytes, ...]) -> Timing:
    """Read the values of `TIMING_FIELDS`, `b''` for an absent one."""
    told = dict(zip(TIMING_FIELDS, (value.decode() for value in values), strict=True))

    def number(name: str) -> int | None:
        return int(told[name]) if told[name] else None

    return Timing(
        cron=told["cron"] or None, every_ms=number("every"), tz=told["tz"] or "UTC",
        dst_gap=told["dst_gap"] or "after", dst_fold=told["dst_fold"] or "first", overlap=told["overlap"] or "skip",
        misfire=told["misfire"] or "once", misfire_limit=int(told["misfire_limit"] or 100),
        misfire_window_ms=number("misfire_window"), jitter_ms=number("jitter") or 0, start_ms=number("start"),
        end_ms=number("end"),
    )  # fmt: skip


def check_timing(*, cron: str | None, every: Seconds | None, tz: str, overlap: str, misfire: str, misfire_limit: int,
                 misfire_window: Seconds | None, jitter: Seconds, start: datetime | float | None,
                 end: datetime | float | None, dst_gap: str, dst_fold: str) -> Timing:
    """Check a definition. Raises InvalidCron, ValueError or TypeError; nothing was written then."""
    if (cron is None) == (every is None):
        raise ValueError("give cron or every, and not both")
    _one_of("overlap", overlap, OVERLAPS)
    _one_of("misfire", misfire, MISFIRES)
    if type(misfire_limit) is not int:
        raise TypeError(f"misfire_limit must be an int, not {type(misfire_limit).__name__}")
    if not 1 <= misfire_limit <= 10_000:
        raise ValueError("misfire_limit must be from 1 to 10000")
    start_ms, end_ms = _instant_ms("start", start), _instant_ms("end", end)
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise ValueError("start must be before end")
    # Read first, so that a zone that is unknown is refused with `every` too.
    parse_cron("* * * * *" if cron is None else cron, tz, dst_gap, dst_fold)
    every_ms = None if every is None else _every_ms(every)
    return Timing(
        cron=cron, every_ms=every_ms, tz=tz, dst_gap=dst_gap, dst_fold=dst_fold, overlap=overlap, misfire=misfire,
        misfire_limit=misfire_limit, jitter_ms=_duration_ms("jitter", jitter),
        misfire_window_ms=None if misfire_window is None else _duration_ms("misfire_window", misfire_window),
        start_ms=start_ms, end_ms=end_ms,
    )  # fmt: skip


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value[:40]!r}")


def _every_ms(every: Seconds) -> int:
    number = seconds(every, "every")
    EverySchedule(number, 0)
    return round(number * 1000)


def _duration_ms(name: str, value: Seconds) -> int:
    number = seconds(value, name)
    if not 0 <= number <= LONGEST_DELAY_S:
        raise ValueError(f"{name} must be at least 0 seconds and under 7,900 years")
    return round(number * 1000)


def _instant_ms(name: str, value: datetime | float | None) -> int | None:
    if value is None:
        return None
    try:
        return int(run_at_text(value, None) or 0)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("run_at", name)) from None


def fingerprint(fields: Mapping[str, str | bytes]) -> str:
    """Name a definition: equal ones have equal names, on every node."""
    digest = sha1(usedforsecurity=False)
    for name in sorted(fields):
        value = fields[name]
        raw = value if isinstance(value, bytes) else value.encode()
        digest.update(f"{name}={len(raw)}:".encode() + raw)
    return digest.hexdigest()[:20]


class Occurrence(NamedTuple):
    """One occurrence to be written; a late one was missed while nothing ran, and starts at once."""

    instant_ms: int
    late: bool


@dataclass(frozen=True, slots=True)
class Firing:
    """What is due: the occurrences, oldest first; how many instants were missed (also those that run late)."""

    occurrences: Sequence[Occurrence]
    missed: int
    next_ms: int | None


def plan_firing(timing: Timing, stored_next_ms: int | None, now_ms: int, grace_ms: int = GRACE_MS) -> Firing:
    """Decide what fires now. An instant that is late by more than the grace was missed: the policy decides."""
    if stored_next_ms is None:
        return Firing((), 0, timing.next_after(now_ms))
    if stored_next_ms > now_ms:
        return Firing((), 0, stored_next_ms)
    late_until = now_ms - grace_ms - 1
    if timing.end_ms is not None:
        late_until = min(late_until, timing.end_ms)
    missed = timing.times.count_between(stored_next_ms - 1, late_until) if late_until >= stored_next_ms else 0
    late = _late_runs(timing, stored_next_ms, late_until, now_ms) if missed else []
    on_time = timing.instants(max(stored_next_ms, late_until + 1), now_ms, MOST_AT_ONCE)
    # Where the limit cut off more that is due, the next instant is due at once.
    handled = on_time[-1] if len(on_time) == MOST_AT_ONCE else now_ms
    occurrences = [Occurrence(at, True) for at in late] + [Occurrence(at, False) for at in on_time]
    return Firing(occurrences, missed, timing.next_after(handled))


def _late_runs(timing: Timing, first_ms: int, last_ms: int, now_ms: int) -> list[int]:
    """Choose which of the missed instants in [first, last] run after all: the newest, oldest first."""
    if timing.misfire == "skip":
        return []
    limit = 1 if timing.misfire == "once" else timing.misfire_limit
    low = first_ms if timing.misfire_window_ms is None else max(first_ms, now_ms - timing.misfire_window_ms)
    found: list[int] = []
    instant = timing.times.previous_before(last_ms + 1)
    while instant is not None and instant >= low and len(found) < limit:
        found.append(instant)
        instant = timing.times.previous_before(instant)
    return found[::-1]


def start_ms(timing: Timing, schedule_id: str, instant_ms: int) -> int:
    """Return when an occurrence starts: the same for every scheduler, spread over [0, jitter]."""
    if not timing.jitter_ms:
        return instant_ms
    return instant_ms + crc32(f"{schedule_id}@{instant_ms}".encode()) % (timing.jitter_ms + 1)
