"""Find which value of a payload cannot be stored, and say why: slow and exact, once packing has failed."""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from rzsched.errors import PayloadError

MAX_DEPTH = 200
TOO_DEEP = f"is nested more than {MAX_DEPTH} deep"
CONTAINERS = frozenset((list, dict, tuple, set, frozenset))
_SCALARS = (type(None), bool, int, float, str, bytes, bytearray, memoryview)
_LEAVES = frozenset((*_SCALARS, datetime, date, timedelta, Decimal, UUID))
_PATH_CHARS = 200


def explain(named: Mapping[str, object], room: int, otherwise: str) -> PayloadError:
    """Name the first value, `room` containers deep at most, that cannot be stored; `otherwise` where none is found."""
    for path, value in named.items():
        try:
            fault = _find_fault(value, path, room, set())
        except RecursionError:
            fault = PayloadError(path, TOO_DEEP)
        if fault is not None:
            return fault
    return PayloadError(next(iter(named)), otherwise)


def _find_fault(value: Any, path: str, room: int, outer: set[int]) -> PayloadError | None:
    """Return what is wrong with a value, or None; `outer` holds the ids of the containers around it."""
    if type(value) not in CONTAINERS:
        why = _why_not(value)
    elif id(value) in outer:
        why = "contains itself"
    else:
        why = "" if room else TOO_DEEP
    if why or type(value) not in CONTAINERS:
        return PayloadError(_cut(path), why) if why else None
    outer.add(id(value))
    for step, item in _steps(value):
        fault = _find_fault(item, path + step, room - 1, outer)
        if fault is not None:
            return fault
    outer.discard(id(value))
    return None


def _steps(value: Any) -> Iterable[tuple[str, object]]:
    """Yield each item with the text that leads to it; a key comes before its value."""
    if type(value) is dict:
        for key, item in list(value.items()):
            yield ".keys()", key
            yield _key_step(key), item
    elif type(value) in (set, frozenset):
        yield from (("{}", item) for item in value)
    else:
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def _key_step(key: object) -> str:
    if type(key) is str and key.isidentifier():
        return f".{key}"
    try:
        return f"[{_cut(repr(key), 60)}]"
    except Exception:
        # repr() refuses an int of several thousand digits.
        return f"[{type(key).__name__}]"


def _why_not(value: Any) -> str:
    """Return why a value that is no container cannot be stored, or an empty text."""
    kind = type(value)
    if kind in _CHECKS:
        return _CHECKS[kind](value)
    if kind in _LEAVES:
        return ""
    base = next((base for base in kind.__mro__ if base in _LEAVES or base in CONTAINERS), None)
    if base is not None:
        return f"is a {kind.__name__}, a subclass of {base.__name__}; convert it first"
    return f"is of type {kind.__name__}, which cannot be stored"


def _why_not_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which is no valid text"
    return ""


def _why_not_datetime(value: datetime) -> str:
    try:
        naive = value.utcoffset() is None
    except Exception as error:
        return f"is a datetime whose time zone has no offset for it ({type(error).__name__})"
    return "is a naive datetime; give it a time zone first" if naive else ""


_CHECKS: dict[type, Callable[[Any], str]] = {
    str: _why_not_text,
    datetime: _why_not_datetime,
    memoryview: lambda value: "" if value.c_contiguous else "is a memoryview with gaps; make it bytes first",
    time: lambda value: "is a time without a date; convert it to text or use a datetime",
}


def _cut(text: str, limit: int = _PATH_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
