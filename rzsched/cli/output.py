"""Printing: one JSON document for programs, aligned plain text for people. Both are safe for any terminal."""

import base64
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

import click

from rzsched.errors import one_line

JSON_HELP = (
    "JSON output: instants are ISO 8601 with their offset, durations are seconds, decimals and UUIDs are text. "
    'What JSON lacks is an object with one key: {"$bytes": base64}, {"$set": [...]}, {"$map": [[key, value], ...]} '
    'for a map whose keys are not all text, {"$float": "nan"}, {"$int": hex} beyond 3,000 digits.'
)


_FACT_CHARS = 4000
_INT_BITS = 10_000  # Python writes no longer ones in decimal


def as_json(value: Any) -> Any:
    """Render any value that a job can hold as what JSON has."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _INT_BITS else {"$int": hex(value)}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return {"$set": sorted((as_json(item) for item in value), key=repr)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {str(key): as_json(item) for key, item in value.items()}
        return {"$map": [[as_json(key), as_json(item)] for key, item in value.items()]}
    return str(value)


def record(value: Any, *without: str) -> dict[str, Any]:
    """Give a dataclass's fields, but those named."""
    assert is_dataclass(value)
    return {field.name: getattr(value, field.name) for field in fields(value) if field.name not in without}


def dump(value: Any) -> str:
    # Only ASCII: neither a terminal's control characters nor its encoding can do harm.
    return json.dumps(as_json(value), indent=2 if sys.stdout.isatty() else None, allow_nan=False)


def print_json(value: Any) -> None:
    click.echo(dump(value))


def cell(value: Any, limit: int = 200) -> str:
    """Render one value for people, on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, str | int | StrEnum):
        return one_line(str(value), limit)
    return json.dumps(as_json(value))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under their heads; a column of numbers is aligned to the right."""
    cells = [list(heads), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(heads))]
    right = [bool(rows) and all(isinstance(row[index], int | float) for row in rows) for index in range(len(heads))]
    click.echo("\n".join(_line(line, widths, right) for line in cells))


def _line(line: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        text.rjust(width) if to_right else text.ljust(width)
        for text, width, to_right in zip(line, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print one fact a line, its name first."""
    width = max(len(name) for name in facts)
    click.echo("\n".join(f"{name:<{width}}  {cell(value, _FACT_CHARS)}" for name, value in facts.items()))
