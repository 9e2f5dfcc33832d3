"""Values to bytes and back: msgpack, with extension types for what Python has beside JSON.

A payload is the array `[args]` or `[args, kwargs]`. What comes out equals what went in, type and all;
only a bytearray or memoryview comes back as bytes. What could not is refused with the path of the
offending value, subclasses included: an IntEnum that came back as a bare int would be a silent change.

Leaves such as a datetime are extension values of flat bytes. A tuple, set or frozenset is an array whose
first item is an empty extension value, the mark. So no encoded value ever holds another encoded
value: packer and unpacker see the whole nesting, and no input makes them recurse without bound.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from msgpack import ExtType, Packer, unpackb

from rzsched.errors import PayloadError, PayloadTooLarge

DEFAULT_LIMIT = 1024 * 1024
MAX_DEPTH = 200

_PATH_CHARS = 200
_DATETIME, _DATE, _TIMEDELTA, _DECIMAL, _UUID, _INT = 1, 2, 3, 4, 5, 6
_MARK_TYPES: dict[int, type] = {10: tuple, 11: set, 12: frozenset}
_MARKS = {kind: ExtType(code, b"") for code, kind in _MARK_TYPES.items()}
_MARK_HEAD = b"\xc7\x00"
_MICROSECOND = timedelta(microseconds=1)
_SCALARS = (type(None), bool, int, float, str, bytes, bytearray, memoryview)
_LEAVES = frozenset((*_SCALARS, datetime, date, timedelta, Decimal, UUID))
_CONTAINERS = frozenset((list, dict, tuple, set, frozenset))
# Every byte that can open an array or a map.
_OPENERS = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))


def encode_payload(
    args: Sequence[object], kwargs: Mapping[str, object] | None, limit: int = DEFAULT_LIMIT
) -> bytes:
    """Encode a job's arguments.

    Raises TypeError when `args` is no list or tuple or `kwargs` no mapping with str keys, PayloadError
    with the path of a value that cannot be stored, and PayloadTooLarge over `limit` bytes.
    """
    parts = _parts(args, kwargs)
    try:
        data = _pack(parts, MAX_DEPTH + 2)
    except _Refused as refused:
        named = dict(zip(("args", "kwargs"), parts, strict=False))
        raise _explain(named, MAX_DEPTH + 1, str(refused)) from None
    return _within(data, limit)


def decode_payload(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Decode what `encode_payload` made; raise PayloadError for any other bytes."""
    parts = _unpack(data, "payload", MAX_DEPTH + 2)
    if type(parts) is not list or len(parts) not in (1, 2) or type(parts[0]) is not list:
        raise PayloadError("payload", "is not [args] or [args, kwargs]")
    kwargs = parts[1] if parts[1:] else {}
    if type(kwargs) is not dict:
        raise PayloadError("payload", "its kwargs are no map")
    for key in kwargs:
        if type(key) is not str:
            raise PayloadError("payload", "its kwargs have a key that is no text")
    return tuple(parts[0]), kwargs


def encode_value(value: object, path: str = "result", limit: int = DEFAULT_LIMIT) -> bytes:
    """Encode one value; `path` names it in errors, which are those of `encode_payload`."""
    try:
        data = _pack(value, MAX_DEPTH)
    except _Refused as refused:
        raise _explain({path: value}, MAX_DEPTH, str(refused)) from None
    return _within(data, limit)


def decode_value(data: bytes, path: str = "result") -> Any:
    """Decode what `encode_value` made; raise PayloadError for any other bytes."""
    return _unpack(data, path, MAX_DEPTH)


class _Refused(Exception):
    """Say that a value cannot be stored, before anything is known about where in it the fault lies."""


_TOO_DEEP = f"is nested more than {MAX_DEPTH} deep"


def _parts(args: Sequence[object], kwargs: Mapping[str, object] | None) -> list[object]:
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args: pass a list or a tuple, not {type(args).__name__}")
    if kwargs is None:
        return [list(args)]
    if not kwargs and type(kwargs) is dict:
        return [list(args)]
    if not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs: pass a mapping with str keys, not {type(kwargs).__name__}")
    for key in kwargs:
        if not isinstance(key, str):
            raise TypeError(f"kwargs: pass a mapping with str keys; one is of type {type(key).__name__}")
    if not kwargs:
        return [list(args)]
    return [list(args), kwargs if type(kwargs) is dict else dict(kwargs)]


# A packer is costly to make, and two threads may not share one.
_local = threading.local()


def _packer() -> Packer:
    packer = getattr(_local, "packer", None)
    if packer is None:
        packer = _local.packer = Packer(default=_to_ext, strict_types=True)
    return packer


def _pack(value: object, depth: int) -> bytes:
    try:
        data: bytes = _packer().pack(value)
    except Exception as error:
        _local.packer = None  # it may hold half a value
        # The packer knows no paths, and utcoffset() of a foreign tzinfo may raise anything.
        raise _Refused(f"cannot be stored ({type(error).__name__})") from None
    if _is_deeper(value, data, depth):
        raise _Refused(_TOO_DEEP)
    return data


def _unpack(data: bytes, path: str, depth: int) -> Any:
    try:
        if _MARK_HEAD in data:
            value = _unpack_marked(data)
        else:
            value = unpackb(data, ext_hook=_from_ext, strict_map_key=False, timestamp=3)
    except Exception as error:
        # Whatever goes wrong in here, the bytes are to blame.
        raise PayloadError(path, f"cannot be decoded ({type(error).__name__})") from None
    if _is_deeper(value, data, depth):
        raise PayloadError(path, _TOO_DEEP)
    return value


def _within(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise PayloadTooLarge(len(data), limit)
    return data


# Encoding: what the packer does not know by itself.


def _to_ext(value: Any) -> object:
    return _ENCODERS[type(value)](value)


def _marked(value: Iterable[object]) -> list[object]:
    return [_MARKS[type(value)], *value]


def _encode_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _encode_datetime(value: datetime) -> bytes:
    """Write `<wall time>|<offset in microseconds>`, then `|<zone key>|<fold>` where there is either.

    The offset is no part of the ISO text, since Python 3.11 reads an offset below one second as none.
    """
    offset, zone = value.utcoffset(), value.tzinfo
    if offset is None:
        raise ValueError("naive")
    key = zone.key if type(zone) is ZoneInfo and zone.key else ""
    text = f"{value.replace(tzinfo=None).isoformat()}|{offset // _MICROSECOND}"
    return (f"{text}|{key}|{value.fold}" if key or value.fold else text).encode()


_ENCODERS: dict[type, Callable[[Any], object]] = {
    tuple: _marked,
    set: _marked,
    frozenset: _marked,
    int: lambda value: ExtType(_INT, _encode_int(value)),
    datetime: lambda value: ExtType(_DATETIME, _encode_datetime(value)),
    date: lambda value: ExtType(_DATE, value.isoformat().encode()),
    timedelta: lambda value: ExtType(_TIMEDELTA, _encode_int(value // _MICROSECOND)),
    Decimal: lambda value: ExtType(_DECIMAL, str(value).encode()),
    UUID: lambda value: ExtType(_UUID, value.bytes),
}


# Decoding.

# timestamp=3: what another language's packer wrote as msgpack's own timestamp becomes an aware datetime.
# It is spelled out at both calls, since passing on a dict of options costs a third of a small decode.


def _from_ext(code: int, data: bytes) -> object:
    return _DECODERS[code](data)


def _unpack_marked(data: bytes) -> Any:
    """Unpack data that may hold marks; a mark that opens no array is malformed."""
    marks = 0

    def on_ext(code: int, content: bytes) -> object:
        nonlocal marks
        kind = _MARK_TYPES.get(code)
        if kind is None:
            return _from_ext(code, content)
        if content:
            raise ValueError("a mark is empty")
        marks += 1
        return kind

    def on_list(items: list[Any]) -> object:
        nonlocal marks
        # Only a mark decodes to a type.
        if items and type(items[0]) is type:
            marks -= 1
            return items[0](items[1:])
        return items

    value = unpackb(data, ext_hook=on_ext, list_hook=on_list, strict_map_key=False, timestamp=3)
    if marks:
        raise ValueError("a mark opens no array")
    return value


def _decode_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _decode_datetime(data: bytes) -> datetime:
    wall, offset, key, fold = [*data.decode().split("|"), "", "0"][:4]
    zone = timezone(timedelta(microseconds=int(offset)))
    value = datetime.fromisoformat(wall).replace(tzinfo=zone, fold=int(fold))
    return _in_zone(value, key) if key else value


def _in_zone(value: datetime, key: str) -> datetime:
    """Return the same wall time in a zone, or the value as it is where that would move the instant."""
    try:
        zoned = value.replace(tzinfo=ZoneInfo(key))
    except (LookupError, OSError, ValueError):
        return value
    # This host's time zone data may differ from that of the host that encoded it.
    return zoned if zoned.utcoffset() == value.utcoffset() else value


_DECODERS: dict[int, Callable[[bytes], object]] = {
    _DATETIME: _decode_datetime,
    _DATE: lambda data: date.fromisoformat(data.decode("ascii")),
    _TIMEDELTA: lambda data: timedelta(microseconds=_decode_int(data)),
    _DECIMAL: lambda data: Decimal(data.decode("ascii")),
    _UUID: lambda data: UUID(bytes=data),
    _INT: _decode_int,
}


# Depth: containers within containers, the outermost counted as 1.


def _is_deeper(value: object, data: bytes, depth: int) -> bool:
    # Too few bytes that can open a container: nearly every payload is done here.
    if len(data) <= depth or len(data) - len(data.translate(None, _OPENERS)) <= depth:
        return False
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(depth):
        level = [item for outer in level for item in _items(outer) if type(item) in _CONTAINERS]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterable[object]:
    # Keys are left out: they hold tuples and frozensets only, and the packer bounds those well enough.
    return value.values() if type(value) is dict else value


# Finding what is at fault, once packing has failed: slow and exact.


def _explain(named: Mapping[str, object], room: int, otherwise: str) -> PayloadError:
    for path, value in named.items():
        try:
            fault = _find_fault(value, path, room, set())
        except RecursionError:
            fault = PayloadError(path, _TOO_DEEP)
        if fault is not None:
            return fault
    return PayloadError(next(iter(named)), otherwise)


def _find_fault(value: Any, path: str, room: int, outer: set[int]) -> PayloadError | None:
    """Return what is wrong with a value, or None; `outer` holds the ids of the containers around it."""
    if type(value) not in _CONTAINERS:
        why = _why_not(value)
    elif id(value) in outer:
        why = "contains itself"
    else:
        why = "" if room else _TOO_DEEP
    if why or type(value) not in _CONTAINERS:
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
    base = next((base for base in kind.__mro__ if base in _LEAVES or base in _CONTAINERS), None)
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
