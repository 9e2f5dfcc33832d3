"""Option values: durations, instants, JSON, weighted queues; the library checks what they mean, in its own words."""

import json
import math
import re
from datetime import datetime
from typing import Any

import click

from rzsched.names import check_queue

_DURATION = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(ms|s|m|h|d)?")
_UNIT_S = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_NOT_FINITE = re.compile(r"(?i)[+-]?(nan|inf|infinity)")


def parse_duration(text: str) -> float:
    """Read seconds, or a number with a unit; a value that is not finite passes, for the library to refuse."""
    if _NOT_FINITE.fullmatch(text.strip()):
        return float(text)
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration: write seconds such as 1.5, or 500ms, 30s, 5m, 2h, 1d")
    number, unit = _number(match[1]), match[2]
    try:
        return number / 1000 if unit == "ms" else number * _UNIT_S[unit]
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:  # a fraction, or more digits than int() takes
        return float(text)


def parse_instant(text: str) -> datetime:
    """Read an ISO 8601 instant; it must say its offset."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no ISO 8601 instant: write one such as 2026-11-29T12:00:00+00:00") from None
    if instant.utcoffset() is None:
        raise ValueError(f"{text!r} has no offset from UTC: add Z, or one such as +06:00, to the time of day")
    return instant


def parse_json(text: str) -> Any:
    """Read JSON, or say what is wrong with it, and where, without showing it: it may hold a secret."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} " if "\n" in error.doc.strip() else ""
        raise ValueError(f"not JSON: {error.msg} ({place}character {error.colno})") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def parse_weighted(text: str) -> tuple[str, int]:
    """Read NAME or NAME:WEIGHT; whatever else is taken as a name, and refused as one."""
    name, colon, weight = text.rpartition(":")
    if not colon or not (weight.isascii() and weight.isdecimal()):
        return check_queue(text), 1
    if not 1 <= int(weight[:6]) <= 1000:
        raise ValueError(f"the weight of queue {check_queue(name)!r} must be from 1 to 1000")
    return check_queue(name), int(weight)


def parse_limit(text: str) -> int:
    """Read a count; none is 0, which removes a limit."""
    if text.strip().lower() == "none":
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{text!r} is no number of jobs: write one such as 10, or none to remove the limit")
    return int(text)


def parse_rate(text: str) -> tuple[int, float]:
    """Read N/DURATION, a number of jobs in a time; 0 or none, with or without a time, removes the limit."""
    count, slash, span = text.partition("/")
    if not slash and parse_limit(count) != 0:
        raise ValueError(f"{text!r} is no rate: write one such as 2/1 or 100/1m, or none to remove it")
    return parse_limit(count), parse_duration(span) if slash else 1.0


class _Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A parameter whose text one function reads; its ValueError is wrong usage of that parameter."""

    def __init__(self, name: str, parse: Any) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = _Parsed("duration", parse_duration)
INSTANT = _Parsed("ISO", parse_instant)
JSON = _Parsed("JSON", parse_json)
LIMIT = _Parsed("N", parse_limit)
RATE = _Parsed("N/SECONDS", parse_rate)
WEIGHTED = _Parsed("NAME[:WEIGHT]", parse_weighted)
