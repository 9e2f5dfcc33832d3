"""Cron expressions in English words, short enough for a column of a table."""

from collections.abc import Sequence

from rzsched.cron_fields import MONTHS, WEEKDAYS, CronFields

_MONTH_NAMES = dict(
    zip(
        MONTHS,
        "January February March April May June July August September October November December".split(),
        strict=True,
    )
)
_DAY_NAMES = dict(zip(WEEKDAYS, "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(), strict=True))
_ORDINALS = ("last", "first", "second", "third", "fourth", "fifth")
# More clock times than this are told by their hours and minutes.
_MAX_CLOCK_TIMES = 4


def in_words(fields: CronFields) -> str:
    """Say when a schedule is due; the zone is told elsewhere."""
    days = " ".join(filter(None, (_days(fields), _months(fields))))
    clock = _clock_times(fields)
    if clock:
        return f"at {clock} {days or 'every day'}"
    return " ".join(filter(None, (_within_the_day(fields), days)))


def _clock_times(fields: CronFields) -> str:
    """List the times of the day, if they are few."""
    if len(fields.hours) * len(fields.minutes) * len(fields.seconds) > _MAX_CLOCK_TIMES:
        return ""
    with_seconds = fields.seconds != (0,)
    return _listed(
        [
            f"{hour:02}:{minute:02}" + (f":{second:02}" if with_seconds else "")
            for hour in fields.hours
            for minute in fields.minutes
            for second in fields.seconds
        ]
    )


def _within_the_day(fields: CronFields) -> str:
    every_minute, every_hour = len(fields.minutes) == 60, len(fields.hours) == 24
    parts = []
    if fields.seconds != (0,):
        parts.append(_each("second", fields.seconds, 60, "minute"))
    if not (every_minute and parts):
        parts.append("every hour" if fields.minutes == (0,) and every_hour else _each("minute", fields.minutes, 60, "hour"))
    if not every_hour:
        parts.append(_hours(fields))
    return " ".join(parts)


def _each(unit: str, values: Sequence[int], size: int, of: str) -> str:
    """Say `every 15 minutes`, `every 7 minutes of the hour` or `at minutes 5 and 20`."""
    step = _step(values, size)
    if step == 1:
        return f"every {unit}"
    if step:
        # A step that does not divide the field begins anew each time.
        return f"every {step} {unit}s" + ("" if size % step == 0 else f" of each {of}")
    return f"at {unit}{'s' if len(values) > 1 else ''} {_runs(list(map(str, values)), values)}"


def _step(values: Sequence[int], size: int) -> int:
    if len(values) < 2 or values[0] != 0:
        return 0
    step = values[1]
    return step if tuple(values) == tuple(range(0, size, step)) else 0


def _hours(fields: CronFields) -> str:
    step = _step(fields.hours, 24)
    if step > 1 and 24 % step == 0:
        return f"of every {_ordinal(step)} hour"
    return f"of hour{'s' if len(fields.hours) > 1 else ''} {_runs(list(map(str, fields.hours)), fields.hours)}"


def _ordinal(number: int) -> str:
    return f"{number}{ {2: 'nd', 3: 'rd'}.get(number, 'th')}"


def _days(fields: CronFields) -> str:
    by_month, by_week = _month_days(fields), _weekdays(fields)
    if not fields.both_days and by_month and by_week:
        return f"{by_month} or {by_week}"
    if not fields.both_days:
        return ""
    return f"{by_month} if it is also {by_week}" if by_month and by_week else by_month or by_week


def _month_days(fields: CronFields) -> str:
    if len(fields.month_days) == 31:
        return ""
    names = [_runs(list(map(str, fields.month_days)), fields.month_days)] if fields.month_days else []
    told = [f"day{'s' if len(fields.month_days) > 1 else ''} {name}" for name in names]
    if fields.last_month_day:
        told.append("the last day")
    return f"on {_listed(told)} of the month"


def _weekdays(fields: CronFields) -> str:
    if len(fields.weekdays) == 7:
        return ""
    full = [_DAY_NAMES[name] for name in WEEKDAYS]
    if fields.nth_weekdays:
        nth = [f"the {_ORDINALS[n]} {full[day]}" for day, n in fields.nth_weekdays]
        return f"on {_listed(nth)} of the month"
    # Monday first, so that Friday to Sunday is one run.
    order = sorted(fields.weekdays, key=lambda day: (day + 6) % 7)
    return f"on {_runs([full[day] for day in order], [(day + 6) % 7 for day in order])}"


def _months(fields: CronFields) -> str:
    if len(fields.months) == 12:
        return ""
    return f"in {_runs([_MONTH_NAMES[MONTHS[month - 1]] for month in fields.months], fields.months)}"


def _runs(names: Sequence[str], values: Sequence[int]) -> str:
    """List names, three and more neighbours as `first to last`."""
    groups: list[list[int]] = []
    for index, value in enumerate(values):
        if groups and value == values[groups[-1][-1]] + 1:
            groups[-1].append(index)
        else:
            groups.append([index])
    told: list[str] = []
    for group in groups:
        long = len(group) > 2
        told += [f"{names[group[0]]} to {names[group[-1]]}"] if long else [names[index] for index in group]
    return _listed(told)


def _listed(told: Sequence[str]) -> str:
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"
