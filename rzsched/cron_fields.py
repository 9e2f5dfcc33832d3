"""What a cron expression says, field by field.

croniter reads the fields. Before it comes a stricter look, so that every release of croniter from 6.0 gives the
same answer: no hashed (`H`) or random (`R`) values, no years, no nearest weekday (`W`), and the spellings that
croniter reads in its own way (`5-5` as the whole field, `22-2` in any field, `59/15` in 6.0) are
written out first.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from croniter import CroniterError, croniter

from rzsched.errors import InvalidCron

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Room for every field written as the full list of its values.
_MAX_CHARS = 1000
_LAST = "l"
_ITEM = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d{1,4}))?", re.ASCII)
_NTH = re.compile(r"(?P<day>\w+)#(?P<nth>[1-5])", re.ASCII)
_LAST_WEEKDAY = re.compile(r"l(?P<after>[0-7])|(?P<before>[0-7]|[a-z]{3})l", re.ASCII)


@dataclass(frozen=True)
class _Kind:
    """One of the six fields: its name, its bounds, and the names its values have."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    wraps: bool = False


_SECOND = _Kind("second", 0, 59)
_MINUTE = _Kind("minute", 0, 59)
_HOUR = _Kind("hour", 0, 23)
_DAY = _Kind("day of month", 1, 31)
_MONTH = _Kind("month", 1, 12, MONTHS, wraps=True)
# The week begins with 0 and ends with 7, and both are Sunday.
_WEEKDAY = _Kind("day of week", 0, 6, WEEKDAYS, wraps=True)
_KINDS = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


@dataclass(frozen=True)
class CronFields:
    """Hold the values of each field, in order; Sunday is 0."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: tuple[int, ...]
    last_month_day: bool
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """The weekdays of every week; those of `nth_weekdays` are not among them."""
    nth_weekdays: tuple[tuple[int, int], ...]
    """(weekday, n) for the n-th such day of a month; n = 0 is the last."""
    both_days: bool
    """Whether a day must match day-of-month and day-of-week, as in Vixie cron when either begins with `*`."""
    repeats: bool
    """Whether the schedule repeats within the hour or every hour, and so follows real time when clocks change."""


def read_fields(expression: str) -> CronFields:
    """Read an expression of five fields, of six with seconds first, or an alias; raise InvalidCron."""
    if not isinstance(expression, str):
        raise TypeError(f"a cron expression is a str, not {type(expression).__name__}")
    if len(expression) > _MAX_CHARS:
        raise InvalidCron(expression, f"it has {len(expression)} characters; at most {_MAX_CHARS} are allowed")
    return _read(expression)


@lru_cache(maxsize=4096)
def _read(expression: str) -> CronFields:
    try:
        texts = [_canonical(kind, text) for kind, text in zip(_KINDS, _split(expression), strict=True)]
        expanded, nth = croniter.expand(" ".join(texts), second_at_beginning=True)
    except CroniterError as error:
        raise InvalidCron(expression, str(error).splitlines()[0]) from None
    except ValueError as error:
        raise InvalidCron(expression, str(error)) from None
    minutes, hours, month_days, months, weekdays, seconds = map(_values, _croniter_kinds(), expanded)
    return CronFields(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        month_days=month_days,
        last_month_day=_LAST in expanded[2],
        months=months,
        weekdays=() if nth else weekdays,
        nth_weekdays=_nth(nth),
        both_days=texts[3][0] == "*" or texts[5][0] == "*",
        repeats=any(text[0] == "*" for text in texts[:3]) or len(minutes) == 60 or len(hours) == 24,
    )


def _croniter_kinds() -> tuple[_Kind, ...]:
    return (*_KINDS[1:], _SECOND)


def _values(kind: _Kind, values: list[int | str]) -> tuple[int, ...]:
    if "*" in values:
        return tuple(range(kind.low, kind.high + 1))
    return tuple(sorted(value for value in values if isinstance(value, int)))


def _nth(nth: dict[int, set[int | str]]) -> tuple[tuple[int, int], ...]:
    pairs = ((day, 0 if n == _LAST else int(n)) for day, numbers in nth.items() for n in numbers)
    return tuple(sorted(pairs))


def _split(expression: str) -> list[str]:
    """Split into six lower-case texts, seconds first."""
    text = expression.strip().lower()
    if not (text.isascii() and text.replace("\t", " ").isprintable()):
        raise ValueError("it holds characters that no cron expression has")
    if text.startswith("@"):
        if text not in _ALIASES:
            raise ValueError(f"unknown alias; known are {', '.join(sorted(_ALIASES))}")
        text = _ALIASES[text]
    texts = text.split()
    if len(texts) not in {5, 6}:
        raise ValueError(f"it has {len(texts)} fields; five are needed, or six with seconds first")
    return texts if len(texts) == 6 else ["0", *texts]


def _canonical(kind: _Kind, text: str) -> str:
    """Rewrite a field so that croniter can only read it in one way."""
    if text == "?" and kind in {_DAY, _WEEKDAY}:
        return "*"
    items = text.split(",")
    written = [_special(kind, item) or _plain(kind, item) for item in items]
    special = sum(bool(_special(kind, item)) for item in items)
    if kind is _WEEKDAY and special not in {0, len(items)}:
        raise ValueError("days of every week and days of certain weeks (`#`, `L`) cannot be mixed in one field")
    return ",".join(written)


def _special(kind: _Kind, item: str) -> str:
    """Write `L`, `FRI#2`, `L5` or `5L`; return nothing for any other item."""
    if kind is _DAY and item == _LAST:
        return item
    if kind is not _WEEKDAY:
        return ""
    if nth := _NTH.fullmatch(item):
        return f"{_number(kind, nth['day']) % 7}#{nth['nth']}"
    if last := _LAST_WEEKDAY.fullmatch(item):
        return f"l{_number(kind, last['after'] or last['before']) % 7}"
    return ""


def _plain(kind: _Kind, item: str) -> str:
    match = _ITEM.fullmatch(item)
    if not match:
        raise ValueError(f"{item[:40]!r} is not a {kind.name}")
    low, high, step = match["low"], match["high"], int(match["step"] or 1)
    if step < 1:
        raise ValueError(f"a step of 0 in the {kind.name}")
    if low is None:
        return item
    start = _number(kind, low)
    if high is not None:
        return _range(kind, start, _number(kind, high), step)
    if match["step"] is None:
        return str(start % 7 if kind is _WEEKDAY else start)
    # `0/15` is how others write `*/15`, and must follow real time as that does.
    return f"*/{step}" if start == kind.low and kind in _KINDS[:3] else _range(kind, start, kind.high, step)


def _range(kind: _Kind, low: int, high: int, step: int) -> str:
    """Write a range out; one that runs backwards goes over the end of the year or the week."""
    size = kind.high - kind.low + 1
    if low > high:
        if not kind.wraps:
            raise ValueError(f"the range {low}-{high} of the {kind.name} runs backwards")
        high += size
    values = {(value - kind.low) % size + kind.low for value in range(low, high + 1, step)}
    return ",".join(map(str, sorted(values)))


def _number(kind: _Kind, text: str) -> int:
    if text in kind.names:
        return kind.names.index(text) + kind.low
    number = int(text) if re.fullmatch(r"\d{1,4}", text, re.ASCII) else -1
    top = 7 if kind is _WEEKDAY else kind.high
    if not kind.low <= number <= top:
        raise ValueError(f"{text[:40]!r} is not a {kind.name}: allowed are {kind.low} to {top}")
    return number
