"""The wall times that a cron expression names, on a calendar without clock changes."""

from bisect import bisect_left
from calendar import monthrange
from datetime import date
from functools import lru_cache

from rzsched.cron_fields import CronFields
from rzsched.wallclock import DAY_S, EPOCH_DAY, LAST_YEAR


class WallTimes:
    """Search the wall times of a schedule; a wall time is its seconds since 1970-01-01 00:00 on the wall."""

    def __init__(self, fields: CronFields) -> None:
        self._fields = fields
        self._months = frozenset(fields.months)
        self._minutes = _minutes_of_day(fields.hours, fields.minutes)
        self._seconds = fields.seconds
        self._shapes: dict[tuple[int, int], tuple[int, ...]] = {}

    @property
    def times_a_day(self) -> int:
        return len(self._minutes) * len(self._seconds)

    def is_possible(self) -> bool:
        """Tell whether any date of any year matches."""
        # The calendar repeats after 400 years, and within them a month of a given length begins on every weekday.
        shapes = ((first, length) for month in self._months for length in _lengths(month) for first in range(7))
        return any(_matching_days(self._fields, *shape) for shape in shapes)

    def first(self, low: int, high: int) -> int | None:
        """Find the first wall time in [low, high)."""
        day, second = divmod(low, DAY_S)
        if self._matches(day):
            at = self._time_from(second)
            if at is not None:
                return _below(day * DAY_S + at, high)
        next_day = self._day_after(day, high // DAY_S)
        return None if next_day is None else _below(next_day * DAY_S + self._time(0), high)

    def last(self, low: int, high: int) -> int | None:
        """Find the last wall time in [low, high)."""
        day, second = divmod(high, DAY_S)
        if self._matches(day):
            count = self._count_before(second)
            if count:
                return _from(day * DAY_S + self._time(count - 1), low)
        earlier = self._day_before(day, low // DAY_S)
        return None if earlier is None else _from(earlier * DAY_S + self._time(-1), low)

    def count(self, low: int, high: int) -> int:
        """Count the wall times in [low, high)."""
        if low >= high:
            return 0
        (first, start), (last, stop) = divmod(low, DAY_S), divmod(high, DAY_S)
        before = self._count_before(start) if self._matches(first) else 0
        after = self._count_before(stop) if self._matches(last) else 0
        return self._days_between(first, last) * self.times_a_day - before + after

    def _time(self, index: int) -> int:
        minute, second = divmod(index, len(self._seconds))
        return self._minutes[minute] * 60 + self._seconds[second]

    def _time_from(self, second: int) -> int | None:
        index = self._count_before(second)
        return self._time(index) if index < self.times_a_day else None

    def _count_before(self, second_of_day: int) -> int:
        minute, second = divmod(second_of_day, 60)
        index = bisect_left(self._minutes, minute)
        count = index * len(self._seconds)
        if index < len(self._minutes) and self._minutes[index] == minute:
            count += bisect_left(self._seconds, second)
        return count

    def _matches(self, day: int) -> bool:
        on = date.fromordinal(day + EPOCH_DAY)
        return on.day in self._days(on.year, on.month)

    def _day_after(self, day: int, last: int) -> int | None:
        """Find the first matching day in (day, last]."""
        on = date.fromordinal(day + EPOCH_DAY)
        year, month, after, first = on.year, on.month, on.day, day + 1 - on.day
        while first <= last and year <= LAST_YEAR + 1:
            days = self._days(year, month)
            index = bisect_left(days, after + 1)
            if index < len(days):
                return first + days[index] - 1
            first, after = first + monthrange(year, month)[1], 0
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _day_before(self, day: int, first_day: int) -> int | None:
        """Find the last matching day in [first_day, day)."""
        on = date.fromordinal(day + EPOCH_DAY)
        year, month, before, first = on.year, on.month, on.day, day + 1 - on.day
        while year >= 1:
            days = self._days(year, month)
            index = bisect_left(days, before)
            if index:
                return first + days[index - 1] - 1
            if first <= first_day:
                break
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            before = 32
            first -= monthrange(year, month)[1] if year else 0
        return None

    def _days_between(self, first: int, last: int) -> int:
        """Count the matching days in [first, last)."""
        return self._days_before(last, first) - self._days_before(first, first)

    def _days_before(self, day: int, since: int) -> int:
        """Count the matching days before a day from the beginning of the month of another."""
        start, end = (date.fromordinal(each + EPOCH_DAY) for each in (since, day))
        months = range(start.year * 12 + start.month - 1, end.year * 12 + end.month - 1)
        whole = sum(len(self._days(month // 12, month % 12 + 1)) for month in months)
        return whole + bisect_left(self._days(end.year, end.month), end.day)

    def _days(self, year: int, month: int) -> tuple[int, ...]:
        if month not in self._months:
            return ()
        shape = monthrange(year, month)
        days = self._shapes.get(shape)
        if days is None:
            days = self._shapes[shape] = _matching_days(self._fields, *shape)
        return days


@lru_cache(maxsize=1024)
def _minutes_of_day(hours: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(hour * 60 + minute for hour in hours for minute in minutes)


def _lengths(month: int) -> set[int]:
    return {monthrange(year, month)[1] for year in (2023, 2024)}


def _below(wall: int, high: int) -> int | None:
    return wall if wall < high else None


def _from(wall: int, low: int) -> int | None:
    return wall if wall >= low else None


def _matching_days(fields: CronFields, first_weekday: int, length: int) -> tuple[int, ...]:
    """Return the matching days of a month that begins on a weekday (Monday is 0) and has so many days."""
    return tuple(day for day in range(1, length + 1) if _day_matches(fields, day, (first_weekday + day) % 7, length))


def _day_matches(fields: CronFields, day: int, weekday: int, length: int) -> bool:
    by_month = day in fields.month_days or (fields.last_month_day and day == length)
    by_week = (
        weekday in fields.weekdays
        or (weekday, (day + 6) // 7) in fields.nth_weekdays
        or (day + 7 > length and (weekday, 0) in fields.nth_weekdays)
    )
    return by_month and by_week if fields.both_days else by_month or by_week
