"""When schedules are due: known cases, and a slow oracle that walks through real time."""

import copy
import json
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from rzsched.cron import CronSchedule, EverySchedule, parse_cron
from rzsched.errors import InvalidCron

_FILE = Path(__file__).parents[1] / "data" / "cron.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
DUE = [case for case in CASES if case["due"]]
REFUSED = [case for case in CASES if not case["due"]]

ZONES = """
    UTC Europe/Berlin Europe/Dublin Europe/London America/New_York America/Santiago America/Sao_Paulo Asia/Beirut
    Africa/Cairo Africa/Casablanca Asia/Gaza Australia/Lord_Howe Pacific/Apia Pacific/Chatham Antarctica/Troll
    Asia/Kathmandu Asia/Pyongyang America/Caracas Pacific/Kwajalein America/Havana Asia/Tehran Pacific/Kiritimati
"""
# Gaps and folds with odd seconds, mostly where a local mean time ends.
ODD_CHANGES = [
    ("Africa/Monrovia", "1972-01-07T00:44:30"),
    ("Europe/Amsterdam", "1937-06-30T23:40:28"),
    ("America/New_York", "1883-11-18T17:00:00"),
    ("Asia/Kolkata", "1905-12-31T18:38:50"),
    ("Asia/Singapore", "1905-05-31T17:04:35"),
    # The only fold that two years of UTC share.
    ("Africa/Sao_Tome", "1884-01-01T00:00:00"),
]


@cache
def zone(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def ms(text: str) -> int:
    return milliseconds(datetime.fromisoformat(text))


def milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def told(instant_ms: int, zone_name: str) -> str:
    return (
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)).astimezone(zone(zone_name)).isoformat()
    )


def title(case: dict[str, Any]) -> str:
    return f"{case['cron']} {case['zone']} {case['why']}"


# -- the oracle: walks real time step by step and knows nothing of stretches, years or croniter


def values(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        start, stop = (low, high) if span == "*" else (int(first), int(last or first))
        found |= set(range(start, stop + 1, int(step or 1)))
    return found


class Matcher:
    def __init__(self, expression: str) -> None:
        texts = expression.split()
        self.texts = texts if len(texts) == 6 else ["0", *texts]
        bounds = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
        self.sets = [values(text, *bound) for text, bound in zip(self.texts, bounds, strict=True)]

    def __call__(self, wall: datetime) -> bool:
        seconds, minutes, hours, days, months, weekdays = self.sets
        if wall.second not in seconds or wall.minute not in minutes or wall.hour not in hours:
            return False
        by_day, by_week = wall.day in days, bool({wall.isoweekday(), wall.isoweekday() % 7} & weekdays)
        star = self.texts[3].startswith("*") or self.texts[5].startswith("*")
        return wall.month in months and (by_day and by_week if star else by_day or by_week)

    @property
    def repeats(self) -> bool:
        return any(text.startswith("*") for text in self.texts[:3])


def oracle(
    schedule: CronSchedule, start: datetime, end: datetime, warm_up: timedelta, step: timedelta = timedelta(minutes=1)
) -> Iterator[int]:
    """Yield the instants in [start, end), having watched the wall for a while before."""
    matches, shown = Matcher(schedule.expression), set()
    moment, before = start - warm_up, None
    while moment < end:
        wall = moment.astimezone(zone(schedule.tz)).replace(tzinfo=None)
        fires = matches(wall)
        if not matches.repeats:
            fires = fires and not (schedule.dst_fold == "first" and wall in shown)
            missing = before + step if before else wall
            while schedule.dst_gap == "after" and missing < wall and not fires:
                fires = matches(missing)
                missing += step
        shown.add(wall)
        before = wall if before is None else max(before, wall)
        if fires and moment >= start:
            yield milliseconds(moment)
        moment += step


def number_lists(low: int, high: int) -> st.SearchStrategy[str]:
    return st.lists(st.integers(low, high), min_size=1, max_size=3).map(lambda found: ",".join(map(str, sorted(found))))


def field(low: int, high: int) -> st.SearchStrategy[str]:
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.integers(2, high).map(lambda by: f"/{by}")
    ranges = st.tuples(span.filter(lambda text: len(set(text.split("-"))) == 2), st.just("") | step).map("".join)
    return st.just("*") | step.map(lambda by: f"*{by}") | number_lists(low, high) | ranges


expressions = st.tuples(
    field(0, 59),
    field(0, 23) | st.sampled_from(["0", "1", "2", "3", "23", "0-3", "1,2"]),
    st.just("*") | field(1, 31),
    st.just("*"),
    st.just("*") | field(0, 7).filter(lambda text: text not in {"0-7", "*/7"}),
).map(" ".join)
policies = st.tuples(st.sampled_from(["after", "skip"]), st.sampled_from(["first", "both"]))


@cache
def change_days(zone_name: str, year: int) -> list[datetime]:
    days = [datetime(year, 1, 1, tzinfo=zone(zone_name)) + timedelta(days=n) for n in range(366)]
    changed = [b.astimezone(UTC) for a, b in pairwise(days) if a.utcoffset() != b.utcoffset()]
    return changed or [days[59].astimezone(UTC)]


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, datetime]:
    name = draw(st.sampled_from(ZONES.split()))
    day = draw(st.sampled_from(change_days(name, draw(st.integers(1973, 2060)))))
    return name, day - timedelta(days=1, minutes=draw(st.integers(0, 1439)))


def hold_together(schedule: CronSchedule, expected: list[int], low: int, high: int) -> None:
    """Check every way to ask for the instants in [low, high) against the expected ones."""
    got = []
    instant = schedule.next_after(low - 1)
    while instant is not None and instant < high:
        got.append(instant)
        instant = schedule.next_after(int(str(instant)))
    assert got == expected
    assert list(islice(schedule.iterate(low - 1), len(got))) == got
    assert schedule.count_between(low - 1, high - 1) == len(got)
    back, instant = [], schedule.previous_before(high)
    while instant is not None and instant >= low:
        back.append(instant)
        instant = schedule.previous_before(instant)
    assert back[::-1] == got


@pytest.mark.parametrize("case", DUE, ids=title)
def test_a_known_case_is_due_when_it_must_be(case: dict[str, Any]) -> None:
    schedule = parse_cron(case["cron"], case["zone"])
    due = list(islice(schedule.iterate(ms(case["after"])), len(case["due"])))
    assert [told(instant, case["zone"]) for instant in due] == case["due"]
    hold_together(schedule, due, ms(case["after"]) + 1, due[-1] + 1)


@pytest.mark.parametrize("case", REFUSED, ids=title)
def test_a_known_case_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidCron):
        parse_cron(case["cron"], case["zone"])


@settings(max_examples=120, deadline=None)
@given(expressions, windows(), policies)
def test_minute_by_minute_the_same_instants_around_clock_changes(
    expression: str, window: tuple[str, datetime], policy: tuple[str, str]
) -> None:
    name, start = window
    end = start + timedelta(days=2)
    schedule = CronSchedule(expression, name, *policy)
    expected = list(oracle(schedule, start, end, timedelta(days=1, hours=6)))
    hold_together(schedule, expected, milliseconds(start), milliseconds(end))


@pytest.mark.parametrize(("name", "change"), ODD_CHANGES, ids=str)
@pytest.mark.parametrize("policy", [("after", "first"), ("skip", "both")], ids="-".join)
@pytest.mark.parametrize(
    "expression",
    ["*/7 * * * * *", "5 * * * *", "15 2-58 * * * *", "0 1,2,3,4,30,40,59 0-8,10-23 * * *", "0 0,12 * * *"],
)
def test_second_by_second_the_same_instants_where_offsets_have_seconds(
    expression: str, name: str, change: str, policy: tuple[str, str]
) -> None:
    at = datetime.fromisoformat(change).replace(tzinfo=UTC)
    start, end = at - timedelta(minutes=50), at + timedelta(minutes=50)
    schedule = CronSchedule(expression, name, *policy)
    expected = list(oracle(schedule, start, end, timedelta(hours=2), timedelta(seconds=1)))
    hold_together(schedule, expected, milliseconds(start), milliseconds(end))


@settings(max_examples=100, deadline=None)
@given(expressions, st.integers(0, 2**32))
def test_without_clock_changes_croniter_agrees(expression: str, after_s: int) -> None:
    # croniter takes either day field where Vixie cron, told so by a star, takes both.
    walker = croniter(expression, datetime.fromtimestamp(after_s, UTC), ret_type=datetime, implement_cron_bug=True)
    expected = [milliseconds(walker.get_next()) for _ in range(20)]
    assert list(islice(parse_cron(expression).iterate(after_s * 1000), 20)) == expected


@given(st.sampled_from(DUE), st.integers(0, 4_000_000_000_000))
def test_no_answer_depends_on_the_way_to_it(case: dict[str, Any], after_ms: int) -> None:
    schedule = parse_cron(case["cron"], case["zone"])
    due = schedule.next_after(after_ms)
    assert due is not None and due > after_ms and due % 1000 == 0
    assert schedule.next_after(due - 1) == due
    assert schedule.previous_before(due + 1) == due
    earlier = schedule.previous_before(due)
    assert earlier is not None and earlier <= after_ms and schedule.next_after(earlier) == due


def test_gap_and_fold_policies_turn_the_defaults_round() -> None:
    skip = parse_cron("30 2 * * *", "America/New_York", dst_gap="skip")
    assert told(skip.next_after(ms("2025-03-08T12:00:00-05:00")) or 0, skip.tz) == "2025-03-10T02:30:00-04:00"
    both = parse_cron("30 1 * * *", "America/New_York", dst_fold="both")
    due = islice(both.iterate(ms("2025-11-02T00:00:00-04:00")), 2)
    assert [told(at, both.tz) for at in due] == ["2025-11-02T01:30:00-04:00", "2025-11-02T01:30:00-05:00"]


def test_counting_a_year_of_minutes_needs_no_walk() -> None:
    schedule = parse_cron("* * * * *", "Europe/Berlin")
    assert schedule.count_between(ms("2025-01-01T00:00:00+01:00"), ms("2026-01-01T00:00:00+01:00")) == 365 * 1440


def test_the_calendar_ends_quietly() -> None:
    schedule = parse_cron("0 0 29 2 *", "Europe/Berlin")
    assert schedule.next_after(10**18) is None and schedule.previous_before(-(10**18)) is None
    assert schedule.next_after(-(10**18)) is not None and schedule.previous_before(10**18) is not None
    assert schedule.next_after(ms("9997-01-01T00:00:00+00:00")) is None


def test_schedules_are_values() -> None:
    schedule = parse_cron("0 2 * * *", "Asia/Dhaka")
    assert schedule == CronSchedule("0 2 * * *", "Asia/Dhaka") and hash(schedule) == hash(copy.copy(schedule))
    assert pickle.loads(pickle.dumps(schedule)).next_after(0) == schedule.next_after(0)


@given(st.floats(0.001, 1e6), st.integers(-(10**12), 10**13), st.integers(-(10**12), 10**13))
def test_intervals_stay_on_their_grid(every: float, anchor_ms: int, after_ms: int) -> None:
    schedule, step = EverySchedule(every, anchor_ms), round(every * 1000)
    due = schedule.next_after(after_ms)
    assert due is not None and due > after_ms and due >= anchor_ms and (due - anchor_ms) % step == 0
    assert due - step <= after_ms or due == anchor_ms
    assert schedule.previous_before(due + step) == due
    assert schedule.count_between(due - 1, due + 3 * step) == 4
    assert list(islice(schedule.iterate(due), 2)) == [due + step, due + 2 * step]


def test_an_interval_begins_at_its_anchor() -> None:
    assert EverySchedule(60, 1_000_000).next_after(0) == 1_000_000
    assert EverySchedule(60, 1_000_000).previous_before(1_000_000) is None


@pytest.mark.parametrize("host_zone", ["UTC", "Australia/Sydney", "America/New_York"])
def test_the_zone_of_the_host_does_not_matter(host_zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", host_zone)
    time.tzset()
    try:
        due = islice(CronSchedule("1 12 * * *", "Europe/Rome").iterate(ms("2026-03-28T00:00:00+01:00")), 2)
        assert [told(at, "Europe/Rome") for at in due] == ["2026-03-28T12:01:00+01:00", "2026-03-29T12:01:00+02:00"]
    finally:
        monkeypatch.undo()
        time.tzset()
