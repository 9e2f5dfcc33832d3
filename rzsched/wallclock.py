"""Wall time and real instants: how the clock of a time zone runs, stretch by stretch.

A zone's clock is a chain of stretches, each with one offset from UTC. Where two of them meet, the wall
clock may jump over a range (a gap) or show a range again (a fold). Everything here counts whole seconds since
1970: instants in UTC, wall times as if the wall were UTC.

The data are those of the tzdata package alone, never the host's: two nodes with the same packages agree
about every instant, and names such as `localtime` do not exist.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY_S = 86_400
EPOCH_DAY = date(1970, 1, 1).toordinal()
# One year short of what datetime can hold at both ends, so that no offset leaves it.
FIRST_YEAR, LAST_YEAR = 2, 9998

_EPOCH, _SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)
# No two clock changes in the data are nearer than 6.9 days, so none hides between two probes.
_PROBE_S = 2 * DAY_S
# A clock can be set back by a day (Juneau 1867, at most 25 hours): what it showed before must be known that far back.
_LOOK_BACK_S = 3 * DAY_S


Wanted = Callable[[int, int], bool]


class Stretch(NamedTuple):
    """A time [start_s, end_s) with one offset; wall times below `seen_s` were shown or skipped before it."""

    start_s: int
    end_s: int
    offset_s: int
    seen_s: int

    @property
    def wall_start_s(self) -> int:
        return self.start_s + self.offset_s


def check_zone(name: str) -> str:
    """Return the name of a zone that exists, or raise ValueError naming it."""
    if not isinstance(name, str):
        raise TypeError(f"a time zone is named by a str, not {type(name).__name__}")
    if name not in _zone_names():
        raise ValueError(f"unknown time zone {name[:80]!r}: use a name of the IANA database, such as Europe/Rome")
    return name


def stretches_from(zone: str, instant_s: int, wanted: Wanted) -> Iterator[Stretch]:
    """Yield the stretches from the one that holds the instant onwards, in the years that are wanted.

    They are also cut where years meet; `wanted` is asked about the beginning and the end of each year.
    """
    for year in range(max(year_of(instant_s), FIRST_YEAR), LAST_YEAR + 1):
        if wanted(year_start(year), year_start(year + 1)):
            yield from (stretch for stretch in _stretches_of(zone, year) if stretch.end_s > instant_s)


def stretches_back(zone: str, instant_s: int, wanted: Wanted) -> Iterator[Stretch]:
    """Yield the stretches that begin before the instant, the latest first, in the years that are wanted."""
    for year in range(min(year_of(instant_s), LAST_YEAR), FIRST_YEAR - 1, -1):
        if wanted(year_start(year), year_start(year + 1)):
            yield from (stretch for stretch in reversed(_stretches_of(zone, year)) if stretch.start_s < instant_s)


def year_of(second: int) -> int:
    """Name the year of an instant or a wall time; beyond what dates can hold, the nearest that they can."""
    day = second // DAY_S + EPOCH_DAY
    if day < 1:
        return 1
    return date.fromordinal(day).year if day <= date.max.toordinal() else date.max.year


def year_start(year: int) -> int:
    return (date(year, 1, 1).toordinal() - EPOCH_DAY) * DAY_S


@cache
def _zone_names() -> frozenset[str]:
    return frozenset((resources.files("tzdata") / "zones").read_text(encoding="utf-8").split())


@cache
def _zone(name: str) -> ZoneInfo:
    path = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@lru_cache(maxsize=4096)
def _stretches_of(zone: str, year: int) -> tuple[Stretch, ...]:
    """Return the stretches of one year of UTC."""
    first, end = year_start(year), year_start(year + 1)
    found: list[Stretch] = []
    for start, stop, offset in _runs(_zone(zone), first - _LOOK_BACK_S, end):
        seen = max((before.end_s + before.offset_s for before in found), default=start + offset)
        found.append(Stretch(start, stop, offset, seen))
    return tuple(_cut(stretch, first) for stretch in found if stretch.end_s > first)


def _cut(stretch: Stretch, first_s: int) -> Stretch:
    """Let a stretch begin where the year does; it may still be showing what was shown before."""
    if stretch.start_s >= first_s:
        return stretch
    return stretch._replace(start_s=first_s, seen_s=max(stretch.seen_s, first_s + stretch.offset_s))


def _runs(zone: ZoneInfo, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, offset) over a range of instants."""
    offset, low = _offset(zone, start), start
    while low < end:
        high = min(low + _PROBE_S, end)
        after = _offset(zone, high)
        if after != offset:
            change = _change(zone, low, high, offset)
            if change < end:
                yield start, change, offset
                start, offset = change, after
        low = high
    yield start, end, offset


def _change(zone: ZoneInfo, low: int, high: int, offset: int) -> int:
    """Find the first second with another offset in (low, high]."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: ZoneInfo, instant_s: int) -> int:
    offset = (_EPOCH + timedelta(seconds=instant_s)).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // _SECOND
