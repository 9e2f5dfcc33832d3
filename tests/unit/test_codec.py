"""Properties and refusals of the codec."""

import collections
import decimal
import enum
import math
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rzsched.codec import decode_payload, decode_value, encode_payload, encode_value
from rzsched.errors import PayloadError, PayloadTooLarge
from rzsched.payload_faults import MAX_DEPTH

DHAKA = ZoneInfo("Asia/Dhaka")
BERLIN = ZoneInfo("Europe/Berlin")


class Colour(enum.IntEnum):
    RED = 1


class Mood(enum.StrEnum):
    GOOD = "good"


class Point(NamedTuple):
    x: int
    y: int


class Broken(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        raise LookupError("no such offset")

    def tzname(self, when: datetime | None) -> None:
        return None

    def dst(self, when: datetime | None) -> None:
        return None


def fixed_offsets() -> st.SearchStrategy[timezone]:
    day = timedelta(hours=23, minutes=59)
    return st.timedeltas(-day, day).map(timezone)


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**300), 2**300),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.one_of(st.timezones(), fixed_offsets()), allow_imaginary=True),
    st.dates(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
KEYS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    KEYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(KEYS, max_size=4),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    """Return the types all the way down, in an order that survives a set's."""
    if isinstance(value, dict):
        return dict, sorted((repr((shape(k), shape(v))) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(shape(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    if isinstance(value, datetime):
        return datetime, value.utcoffset(), value.fold, value.microsecond
    return type(value), repr(value)


def nested(depth: int, leaf: object = None) -> object:
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


@given(VALUES)
def test_a_value_comes_back_equal_with_every_type_inside_it(value: Any) -> None:
    back = decode_value(encode_value(value))
    assert back == value
    assert shape(back) == shape(value)


@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(), VALUES, max_size=3))
def test_arguments_come_back_equal_with_every_type_inside_them(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    back = decode_payload(encode_payload(args, kwargs))
    assert back == (tuple(args), kwargs)
    assert shape(back) == shape((tuple(args), kwargs))


@pytest.mark.parametrize(
    "number", [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**4000, -(2**4000), 0]
)
def test_an_integer_of_any_size_is_exact(number: int) -> None:
    assert decode_value(encode_value(number)) == number
    assert decode_value(encode_value({number: [number]})) == {number: [number]}


@pytest.mark.parametrize(
    "text", ["NaN", "sNaN12", "-NaN", "Infinity", "-Infinity", "-0", "0E+7", "1.200", "1E-999999"]
)
def test_a_decimal_keeps_its_sign_digits_and_exponent(text: str) -> None:
    back = decode_value(encode_value(Decimal(text)))
    assert back.as_tuple() == Decimal(text).as_tuple()


def test_a_decimal_does_not_depend_on_the_current_decimal_context() -> None:
    number = Decimal("1.23456789012345678901234567890E+400")
    with decimal.localcontext() as context:
        context.prec, context.Emax, context.capitals = 3, 99, 0
        assert decode_value(encode_value(number)).as_tuple() == number.as_tuple()


def test_odd_floats_survive() -> None:
    inf, minus_zero, nan = decode_value(encode_value([-math.inf, -0.0, math.nan]))
    assert inf == -math.inf and math.copysign(1, minus_zero) == -1 and math.isnan(nan)


@pytest.mark.parametrize("fold", [0, 1])
def test_a_repeated_wall_time_keeps_its_zone_and_fold(fold: int) -> None:
    when = datetime(2024, 10, 27, 2, 30, 0, 123456, tzinfo=BERLIN, fold=fold)
    back = decode_value(encode_value(when))
    assert back == when and back.fold == fold and back.tzinfo is BERLIN
    assert back.utcoffset() == timedelta(hours=2 - fold) and back.timestamp() == when.timestamp()


@pytest.mark.parametrize("microseconds", [1, -1, 999_999, -999_999, 0])
def test_an_offset_below_one_second_is_exact(microseconds: int) -> None:
    zone = timezone(timedelta(microseconds=microseconds))
    back = decode_value(encode_value(datetime(2000, 1, 1, tzinfo=zone)))
    assert back == datetime(2000, 1, 1, tzinfo=zone) and back.tzinfo == zone


@pytest.mark.parametrize("when", [datetime.min, datetime.max, datetime(1900, 1, 1, 0, 0, 0, 1)])
def test_extreme_datetimes_survive_in_any_zone(when: datetime) -> None:
    offset = timezone(-timedelta(hours=5, minutes=30, seconds=7, microseconds=9))
    for zone in (DHAKA, BERLIN, UTC, offset):
        back = decode_value(encode_value(when.replace(tzinfo=zone)))
        assert back == when.replace(tzinfo=zone) and back.utcoffset() == zone.utcoffset(when)


def test_a_datetime_keeps_its_instant_where_its_zone_is_unknown_or_has_changed() -> None:
    data = encode_value(datetime(2024, 5, 1, 12, tzinfo=DHAKA))
    for other in (b"Asia/Dhakx", b"Asia/Tokyo", b"../../Dhak"):
        back = decode_value(data.replace(b"Asia/Dhaka", other))
        assert back == datetime(2024, 5, 1, 6, tzinfo=UTC)
        assert back.utcoffset() == timedelta(hours=6)


def test_a_msgpack_timestamp_of_another_language_reads_as_a_utc_datetime() -> None:
    data = msgpack.packb(msgpack.Timestamp(1_700_000_000, 5_000))
    assert decode_value(data) == datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=5)


def test_byte_buffers_come_back_as_bytes() -> None:
    assert decode_value(encode_value([bytearray(b"a\x00"), memoryview(b"\xff")])) == [b"a\x00", b"\xff"]


def test_text_is_not_normalised_and_bytes_stay_bytes() -> None:
    value = {"b": b"\x00\xff", "u": "e\u0301", "n": 2**63}
    assert decode_payload(encode_payload((), value)) == ((), value)


def test_bytes_that_look_like_a_mark_are_only_bytes() -> None:
    value = [b"\xc7\x00\x0a", "\x00", (b"\xc7\x00\x0b",)]
    assert decode_value(encode_value(value)) == value


def test_a_payload_without_keyword_arguments_stays_small() -> None:
    assert encode_payload((1, "a"), None) == encode_payload([1, "a"], {}) == b"\x91\x92\x01\xa1a"


def test_keyword_arguments_may_be_any_mapping() -> None:
    for kwargs in (MappingProxyType({"a": 1}), collections.OrderedDict(a=1), collections.ChainMap({"a": 1})):
        assert decode_payload(encode_payload([], kwargs)) == ((), {"a": 1})


SELF: list[Any] = [1]
SELF.append({"me": (SELF,)})

REFUSED = [
    (object(), "", "is of type object, which"),
    ([1, object()], "[1]", "which cannot be stored"),
    ({"order": {"lines": [0, 1, 2, object()]}}, ".order.lines[3]", "which cannot be stored"),
    ({"order": {"a b": object()}}, ".order['a b']", "which cannot be stored"),
    ({7: {(1, 2): object()}}, "[7][(1, 2)]", "which cannot be stored"),
    ({"k": {Colour.RED: 1}}, ".k.keys()", "subclass of int; convert it first"),
    ({10**5000: object()}, "[int]", "which cannot be stored"),
    ((1, (object(),)), "[1][0]", "which cannot be stored"),
    ({"s": {Colour.RED}}, ".s{}", "subclass of int; convert it first"),
    (frozenset({Mood.GOOD}), "{}", "is a Mood, a subclass of str; convert it first"),
    ([Point(1, 2)], "[0]", "subclass of tuple; convert it first"),
    (collections.OrderedDict(a=1), "", "subclass of dict; convert it first"),
    (type("MyFloat", (float,), {})(1.5), "", "subclass of float; convert it first"),
    (type("MyWhen", (datetime,), {})(2024, 1, 1, tzinfo=DHAKA), "", "subclass of datetime"),
    ([datetime(2024, 1, 1)], "[0]", "naive datetime"),
    ([time(1, 2)], "[0]", "time without a date"),
    (["ok", "\ud800"], "[1]", "lone surrogate"),
    ({"\udfff": 1}, ".keys()", "lone surrogate"),
    (memoryview(b"abcdef")[::2], "", "memoryview with gaps"),
    (SELF, "[1].me[0]", "contains itself"),
    (datetime(2024, 1, 1, tzinfo=Broken()), "", "time zone has no offset for it (LookupError)"),
    (1j, "", "is of type complex"),
    (range(3), "", "is of type range"),
    (lambda: None, "", "is of type function"),
]


@pytest.mark.parametrize(("value", "path", "why"), REFUSED)
def test_what_cannot_be_stored_is_refused_by_its_path(value: Any, path: str, why: str) -> None:
    attempts: list[tuple[str, Callable[[], bytes]]] = [
        ("result", lambda: encode_value(value)),
        ("progress", lambda: encode_value(value, path="progress")),
        ("args[1]", lambda: encode_payload([None, value], None)),
        ("kwargs.order", lambda: encode_payload((), {"fine": 1, "order": value})),
    ]
    for place, encode in attempts:
        with pytest.raises(PayloadError) as caught:
            encode()
        assert caught.value.path == place + path
        assert why in str(caught.value) and "\n" not in str(caught.value)


def test_depth_is_allowed_up_to_its_limit_and_refused_past_it() -> None:
    deepest, deeper = nested(MAX_DEPTH), nested(MAX_DEPTH + 1)
    assert decode_value(encode_value(deepest)) == deepest
    assert decode_payload(encode_payload([deepest], {"k": deepest})) == ((deepest,), {"k": deepest})
    attempts: list[Callable[[], bytes]] = [
        lambda: encode_value(deeper),
        lambda: encode_payload([deeper], None),
        lambda: encode_payload((), {"k": deeper}),
    ]
    for encode in attempts:
        with pytest.raises(PayloadError, match="nested more than 200 deep"):
            encode()
    with pytest.raises(PayloadError, match="nested more than 200 deep"):
        decode_value(b"\x91" * (MAX_DEPTH + 1) + b"\xc0")


@pytest.mark.parametrize("depth", [300, 600, 5_000, 50_000])
@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}, lambda v: frozenset([v])]
)
def test_a_value_nested_far_too_deep_is_refused_without_exhausting_the_stack(depth: int, wrap: Any) -> None:
    if depth > MAX_DEPTH * 3 and type(wrap(0)) is frozenset:
        depth = MAX_DEPTH * 3  # Hashing a deeper one exhausts the stack before we see it.
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    with pytest.raises(PayloadError, match="nested more than 200 deep") as caught:
        encode_payload([value], None)
    assert caught.value.path.startswith("args[0]") and len(caught.value.path) <= 200


def test_a_wide_value_is_not_taken_for_a_deep_one() -> None:
    wide = [[{"id": i, "tags": ("a", {i})}] for i in range(500)]
    assert decode_value(encode_value(wide)) == wide


def test_the_limit_counts_bytes_and_is_inclusive() -> None:
    size = len(encode_payload(["x" * 1000], None))
    assert encode_payload(["x" * 1000], None, limit=size)
    with pytest.raises(PayloadTooLarge) as caught:
        encode_payload(["x" * 1000], None, limit=size - 1)
    assert (caught.value.size, caught.value.limit) == (size, size - 1)
    with pytest.raises(PayloadTooLarge):
        encode_value("x" * (1024 * 1024))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ("text", None),
        (b"bytes", None),
        (None, None),
        ({1, 2}, None),
        ((), [("a", 1)]),
        ((), []),
        ((), "a"),
        ((), 0),
        ((), {1: 2}),
    ],
)
def test_arguments_of_a_wrong_shape_are_a_type_error(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError, match=r"^k?w?args: pass a"):
        encode_payload(args, kwargs)


MALFORMED = [
    b"",
    b"\xff\x00",
    b"\xc0",
    b"\x90",
    b"\x81\x01\x02",
    b"\x93\x90\x80\x80",
    b"\x91\x80",
    b"\x91\x93\xc7\x00\x0a\x01\x02",
    b"\x92\x90\x90",
    b"\x92\x90\xc0",
    b"\x92\x90\x81\x01\x02",
    b"\x92\x90\x81\xa1a",
    encode_payload([1], None) + b"\x00",
    encode_payload([1], {"a": 2})[:-1],
    b"\x91\x91\xa2\xff\xfe",
    b"\x91\x91\xd4\x63\x00",
    b"\x91\x91\xd4\x05\x00",
    b"\x91\x91\xc7\x00\x02",
    b"\x91\x91\xd6\x04abcd",
    b"\x91\x91\xd6\x01abcd",
    b"\x91\xdd\xff\xff\xff\xff",
    b"\x91\x91\xdb\xff\xff\xff\xff",
    b"\x91\x91\xdf\xff\xff\xff\xff",
    b"\x91\x91\xc9\xff\xff\xff\xff\x06",
    b"\x91" * 300 + b"\x90",
    b"\x91" * 100_000 + b"\x90",
    b"\xdd\x00\x0f\x00\x00" * 1_000 + b"\xc0" * 0x0F0000,
    b"\x91\x91\x81\x90\x01",
    b"\x91\x91\xc7\x00\x0a",
    b"\x91\x92\x01\xc7\x00\x0a",
    b"\x91\x91\x81\xa1a\xc7\x00\x0a",
    b"\x91\x91\x92\xc7\x00\x0a\xc7\x00\x0b",
    b"\x91\x91\x92\xc7\x00\x0b\x90",
    b"\x91\x91\x93\xc7\x00\x0a\xd4\x0a\x00\x01",
    b"\x91\x91\xd7\xff" + b"\xff" * 8,
    b"\x91\x91\xc7\x0c\xff" + b"\xff" * 12,
    b"\x91\x91\xc7\x13\x01" + b"2024-01-01T00:00:00",
    b"\x91\x91\xc7\x18\x01" + b"2024-01-01T00:00:00|0||9",
    b"\x91\x91\xc7\x1f\x01" + b"2024-01-01T00:00:00|99999999999",
]


@pytest.mark.parametrize("data", MALFORMED, ids=lambda data: data[:12].hex())
def test_malformed_payloads_raise_only_a_payload_error(data: bytes) -> None:
    with pytest.raises(PayloadError) as caught:
        decode_payload(data)
    assert caught.value.path == "payload" and "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [None, "text", 7])
def test_a_missing_payload_is_a_payload_error_too(data: Any) -> None:
    with pytest.raises(PayloadError):
        decode_payload(data)
    with pytest.raises(PayloadError, match="result"):
        decode_value(data)


def only_payload_errors(data: bytes) -> None:
    try:
        args, kwargs = decode_payload(data)
    except PayloadError:
        return
    assert type(args) is tuple and all(type(key) is str for key in kwargs)
    assert not holds_a_type([args, kwargs])


def holds_a_type(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_a_type(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds_a_type(item) for item in value)
    return isinstance(value, type)


@given(st.binary(max_size=200))
def test_random_bytes_raise_only_payload_errors(data: bytes) -> None:
    only_payload_errors(data)
    only_payload_errors(b"\x91\x91" + data)
    only_payload_errors(b"\x92\x91\x93\xc7\x00\x0a" + data)


@given(st.lists(VALUES, max_size=3), st.data())
def test_damaged_payloads_raise_only_payload_errors(args: list[Any], data: st.DataObject) -> None:
    good = bytearray(encode_payload(args, {"k": (1,)}))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    only_payload_errors(bytes(good))


@given(st.integers(0, 127), st.binary(max_size=20))
@example(5, uuid.uuid4().bytes)
def test_extension_values_of_any_content_raise_only_payload_errors(code: int, content: bytes) -> None:
    only_payload_errors(msgpack.packb([[msgpack.ExtType(code, content)]]))
    only_payload_errors(msgpack.packb([[[msgpack.ExtType(code, content), 1]]]))


def test_dates_are_not_datetimes() -> None:
    assert type(decode_value(encode_value(date(2024, 2, 29)))) is date
