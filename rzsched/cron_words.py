"""Cron expressions in English words, short enough for a column of a table."""

from collections.abc import Sequence

from rzsched.cron_fields import CronFields

_MONTH_NAMES = "January February March April May June July August September October November December"
_DAY_NAMES = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday"
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
    """Name the finest field first: `every 15 minutes of hours 1 and 2`."""
    levels = [("second", fields.seconds, 60), ("minute", fields.minutes, 60), ("hour", fields.hours, 24)]
    while len(levels) > 1 and levels[0][1] == (0,) and (levels[0][0] == "second" or _step(*levels[1][1:])):
        del levels[0]
    said = _finest(*levels[0])
    for level in levels[1:]:
        said += _coarser(*level, needed=said.startswith("at "))
    return said


def _finest(unit: str, values: Sequence[int], size: int) -> str:
    step = _step(values, size)
    if step == 1:
        return f"every {unit}"
    return f"every {step} {unit}s" if step and size % step == 0 else f"at {_named(unit, values)}"


def _coarser(unit: str, values: Sequence[int], size: int, needed: bool) -> str:
    step = _step(values, size)
    if step == 1:
        return f" of every {unit}" if needed else ""
    return f" of every {_ordinal(step)} {unit}" if step and size % step == 0 else f" of {_named(unit, values)}"


def _step(values: Sequence[int], size: int, first: int = 0) -> int:
    """Return n for values that `*/n` means, or 0."""
    step = values[1] - values[0] if len(values) > 1 else size
    return step if tuple(values) == tuple(range(first, size + first, step)) and len(values) > 1 else 0


def _named(unit: str, values: Sequence[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_runs(list(map(str, values)), values)}"


def _ordinal(number: int) -> str:
    ending = {2: "nd", 3: "rd"}.get(number, "th")
    return f"{number}{ending}"


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
    step = _step(fields.month_days, 31, first=1)
    told = [f"every {_ordinal(step)} day" if step else _named("day", fields.month_days)] if fields.month_days else []
    if fields.last_month_day:
        told.append("the last day")
    return f"on {_listed(told)} of the month"


def _weekdays(fields: CronFields) -> str:
    if len(fields.weekdays) == 7:
        return ""
    full = _DAY_NAMES.split()
    if fields.nth_weekdays:
        nth = [f"the {_ORDINALS[n]} {full[day]}" for day, n in fields.nth_weekdays]
        return f"on {_listed(nth)} of the month"
    # Monday first, so that Friday to Sunday is one run.
    order = sorted(fields.weekdays, key=lambda day: (day + 6) % 7)
    return f"on {_runs([full[day] for day in order], [(day + 6) % 7 for day in order])}"


def _months(fields: CronFields) -> str:
    if len(fields.months) == 12:
        return ""
    full = _MONTH_NAMES.split()
    return f"in {_runs([full[month - 1] for month in fields.months], fields.months)}"


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
