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
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from msgpack import ExtType, Packer, unpackb

from rzsched.errors import PayloadError, PayloadTooLarge
from rzsched.payload_faults import CONTAINERS, MAX_DEPTH, TOO_DEEP, explain

DEFAULT_LIMIT = 1024 * 1024

_DATETIME, _DATE, _TIMEDELTA, _DECIMAL, _UUID, _INT = 1, 2, 3, 4, 5, 6
_MARK_TYPES: dict[int, type] = {10: tuple, 11: set, 12: frozenset}
_MARKS = {kind: ExtType(code, b"") for code, kind in _MARK_TYPES.items()}
_MARK_HEAD = b"\xc7\x00"
_MICROSECOND = timedelta(microseconds=1)
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
        raise explain(named, MAX_DEPTH + 1, str(refused)) from None
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
        raise explain({path: value}, MAX_DEPTH, str(refused)) from None
    return _within(data, limit)


def decode_value(data: bytes, path: str = "result") -> Any:
    """Decode what `encode_value` made; raise PayloadError for any other bytes."""
    return _unpack(data, path, MAX_DEPTH)


class _Refused(Exception):
    """Say that a value cannot be stored, before anything is known about where in it the fault lies."""


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
        raise _Refused(TOO_DEEP)
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
        raise PayloadError(path, TOO_DEEP)
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
    level = [value] if type(value) in CONTAINERS else []
    for _ in range(depth):
        level = [item for outer in level for item in _items(outer) if type(item) in CONTAINERS]
        if not level:
            return False
    return True


def _items(value: Any) -> Iterable[object]:
    # Keys are left out: they hold tuples and frozensets only, and the packer bounds those well enough.
    return value.values() if type(value) is dict else value
