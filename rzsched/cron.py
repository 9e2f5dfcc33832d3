"""When a schedule is due: cron expressions and fixed intervals, as pure functions of instants.

A cron expression names wall times; the clock of its zone says which instants these are. Where clocks change, the
rule is that of Debian's cron. A schedule of fixed times fires once at the end of a gap for
whatever the gap swallowed, and the first time only when a wall time happens twice. A schedule that repeats within
the hour or every hour (its seconds, minutes or hours begin with `*`, or are all there are) follows real
time: it fires at each instant whose wall time matches, and at no other.

All instants are whole milliseconds since 1970 (UTC) and nothing is remembered between calls, so stepping from any
answer, also one that was stored, gives the same list as iterating.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from rzsched.cron_fields import CronFields, read_fields
from rzsched.cron_times import WallTimes
from rzsched.cron_words import in_words
from rzsched.errors import InvalidCron
from rzsched.wallclock import LAST_YEAR, Stretch, check_zone, stretches_back, stretches_from, year_start

# A century, as for all other waits.
_MAX_EVERY_S = 36_525 * 86_400
_END_S = year_start(LAST_YEAR + 1)
# An instant is at most 16 hours from its wall time, and a firing after a gap a day more from the one it stands for.
_REACH_S = 2 * 86_400
_GAP = ("after", "skip")
_FOLD = ("first", "both")


@dataclass(frozen=True)
class CronSchedule:
    """Say when a cron expression is due in a time zone; made by `parse_cron`.

    `dst_gap`: fixed times that a clock change skips fire once right `after` it, or `skip`.
    `dst_fold`: fixed times that happen twice fire at the `first`, or `both`.
    """

    expression: str
    tz: str = "UTC"
    dst_gap: str = "after"
    dst_fold: str = "first"
    fields: CronFields = field(init=False, repr=False, compare=False)
    _walls: WallTimes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = read_fields(self.expression)
        _choice("dst_gap", self.dst_gap, _GAP)
        _choice("dst_fold", self.dst_fold, _FOLD)
        check_zone(self.tz)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "_walls", _wall_times(fields))
        if not self._walls.is_possible():
            raise InvalidCron(self.expression, "no date ever matches it")

    def next_after(self, after_ms: int) -> int | None:
        """Return the first instant strictly after one; None when the calendar (the year 9998) ends first."""
        start = _whole(after_ms) // 1000 + 1
        for stretch in stretches_from(self.tz, start, self._may_fire):
            found = self._first_in(stretch, start)
            if found is not None:
                return found * 1000
        return None

    def previous_before(self, before_ms: int) -> int | None:
        """Return the last instant strictly before one; None when the calendar begins first."""
        end = -(-_whole(before_ms) // 1000)
        for stretch in stretches_back(self.tz, end, self._may_fire):
            found = self._last_in(stretch, end)
            if found is not None:
                return found * 1000
        return None

    def iterate(self, after_ms: int) -> Iterator[int]:
        """Yield the instants strictly after one, in order."""
        instant = self.next_after(after_ms)
        while instant is not None:
            yield instant
            instant = self.next_after(instant)

    def count_between(self, after_ms: int, until_ms: int) -> int:
        """Count the instants in (after, until] without walking through them."""
        start, end = _whole(after_ms) // 1000 + 1, min(_whole(until_ms) // 1000 + 1, _END_S)
        total = 0
        for stretch in stretches_from(self.tz, start, self._may_fire):
            if stretch.start_s >= end:
                break
            total += self._count_in(stretch, start, end)
        return total

    def in_words(self) -> str:
        """Describe the schedule in a few English words, without its zone."""
        return in_words(self.fields)

    def _may_fire(self, start: int, end: int) -> bool:
        """Tell whether any instant of a range can be one: the clock changes of other years need not be known."""
        return self._walls.first(start - _REACH_S, end + _REACH_S) is not None

    def _first_in(self, stretch: Stretch, start: int) -> int | None:
        """Find the first instant of a stretch from `start` on."""
        if start <= stretch.start_s and self._fires_after_gap(stretch):
            return stretch.start_s
        low = max(start + stretch.offset_s, self._wall_low(stretch))
        wall = self._walls.first(low, stretch.end_s + stretch.offset_s)
        return None if wall is None else wall - stretch.offset_s

    def _last_in(self, stretch: Stretch, end: int) -> int | None:
        """Find the last instant of a stretch before `end`."""
        high = min(end, stretch.end_s) + stretch.offset_s
        wall = self._walls.last(self._wall_low(stretch), high)
        if wall is not None:
            return wall - stretch.offset_s
        return stretch.start_s if self._fires_after_gap(stretch) else None

    def _count_in(self, stretch: Stretch, start: int, end: int) -> int:
        low = max(start + stretch.offset_s, self._wall_low(stretch))
        count = self._walls.count(low, min(end, stretch.end_s) + stretch.offset_s)
        # The end of a gap may itself be one of the wall times, and is still one firing.
        extra = start <= stretch.start_s and self._fires_after_gap(stretch)
        return count + (extra and self._walls.first(stretch.wall_start_s, stretch.wall_start_s + 1) is None)

    def _fires_after_gap(self, stretch: Stretch) -> bool:
        """Tell whether the gap that ends where the stretch begins swallowed a fixed time."""
        if self.fields.repeats or self.dst_gap == "skip" or stretch.seen_s >= stretch.wall_start_s:
            return False
        return self._walls.first(stretch.seen_s, stretch.wall_start_s) is not None

    def _wall_low(self, stretch: Stretch) -> int:
        """Return where the wall times of a stretch begin to count: fixed ones once only, unless both are wanted."""
        if self.fields.repeats or self.dst_fold == "both":
            return stretch.wall_start_s
        return max(stretch.wall_start_s, stretch.seen_s)


@dataclass(frozen=True)
class EverySchedule:
    """Say when an interval in seconds is due, counted from its anchor; the anchor itself is its first instant.

    Raises ValueError for an interval that is not from a millisecond to a century; it is rounded to whole milliseconds.
    """

    every: float
    anchor_ms: int

    def __post_init__(self) -> None:
        if isinstance(self.every, bool) or not isinstance(self.every, (int, float)):
            raise TypeError(f"every is a number of seconds, not {type(self.every).__name__}")
        # Compared before it is shown: an int may have too many digits to print.
        if not 0.001 <= self.every <= _MAX_EVERY_S:
            raise ValueError("every must be a number of seconds from 0.001 to a century (3155760000)")
        _whole(self.anchor_ms)

    def next_after(self, after_ms: int) -> int | None:
        """Return the first instant of the grid strictly after one."""
        steps = (_whole(after_ms) - self.anchor_ms) // self._step_ms + 1
        return self.anchor_ms + max(steps, 0) * self._step_ms

    def previous_before(self, before_ms: int) -> int | None:
        """Return the last instant of the grid strictly before one; None when there is none yet."""
        steps = (_whole(before_ms) - self.anchor_ms - 1) // self._step_ms
        return self.anchor_ms + steps * self._step_ms if steps >= 0 else None

    def iterate(self, after_ms: int) -> Iterator[int]:
        """Yield the instants strictly after one, in order, for ever."""
        instant = self.next_after(after_ms)
        while instant is not None:
            yield instant
            instant = self.next_after(instant)

    def count_between(self, after_ms: int, until_ms: int) -> int:
        """Count the instants in (after, until]."""
        upto = [max((_whole(at) - self.anchor_ms) // self._step_ms + 1, 0) for at in (after_ms, until_ms)]
        return max(upto[1] - upto[0], 0)

    def in_words(self) -> str:
        """Describe the interval in English."""
        for seconds, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
            if self._step_ms % (seconds * 1000) == 0:
                count = self._step_ms // (seconds * 1000)
                return f"every {unit}" if count == 1 else f"every {count} {unit}s"
        return "every second" if self._step_ms == 1000 else f"every {self._step_ms / 1000:g} seconds"

    @property
    def _step_ms(self) -> int:
        return round(self.every * 1000)


def parse_cron(expr: str, tz: str = "UTC", dst_gap: str = "after", dst_fold: str = "first") -> CronSchedule:
    """Read a cron expression for a time zone.

    Raises InvalidCron for an expression that is malformed or never due, ValueError for an unknown zone or
    policy, TypeError for what is no str; all at once, whatever the input.
    """
    read_fields(expr)
    check_zone(tz)
    return _parsed(expr, tz, _choice("dst_gap", dst_gap, _GAP), _choice("dst_fold", dst_fold, _FOLD))


@lru_cache(maxsize=16_384)
def _parsed(expr: str, tz: str, dst_gap: str, dst_fold: str) -> CronSchedule:
    return CronSchedule(expr, tz, dst_gap, dst_fold)


@lru_cache(maxsize=4096)
def _wall_times(fields: CronFields) -> WallTimes:
    return WallTimes(fields)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")
    if value not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, not {value[:40]!r}")
    return value


def _whole(instant_ms: int) -> int:
    if isinstance(instant_ms, bool) or not isinstance(instant_ms, int):
        raise TypeError(f"an instant is an int of milliseconds, not {type(instant_ms).__name__}")
    return instant_ms
