"""The pure side of schedules: definitions, and what fires when."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rzsched.config import ClientSettings
from rzsched.firing import Watch
from rzsched.job import prepare
from rzsched.keys import partition_of_key
from rzsched.options import JobOptions
from rzsched.schedule import (
    GRACE_MS,
    MOST_AT_ONCE,
    TIMING_FIELDS,
    Occurrence,
    Timing,
    check_timing,
    fingerprint,
    plan_firing,
    read_timing,
    start_ms,
)
from rzsched.schedules import ScheduleSpec
from rzsched.space import Space

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
T0 = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
PLAIN: dict[str, Any] = {
    "cron": "* * * * *", "every": None, "tz": "UTC", "overlap": "skip", "misfire": "once", "misfire_limit": 100,
    "misfire_window": None, "jitter": 0, "start": None, "end": None, "dst_gap": "after", "dst_fold": "first",
}  # fmt: skip


def timing(**said: Any) -> Timing:
    if "every" in said:
        said = {"cron": None, **said}
    return check_timing(**{**PLAIN, **said})


def stored(made: Timing) -> Timing:
    fields = made.fields()
    return read_timing(tuple(fields.get(name, "").encode() for name in TIMING_FIELDS))


# ---- the definition


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"every": 0.5},
        {"every": 90, "start": 1_000_000.5},
        {"tz": "Asia/Dhaka", "jitter": 2.5, "misfire_window": 0, "misfire_limit": 7, "end": 2e9},
        {"overlap": "cancel", "misfire": "all", "dst_gap": "skip", "dst_fold": "both"},
    ],
)
def test_what_is_stored_is_read_back(said: dict[str, Any]) -> None:
    assert stored(timing(**said)) == timing(**said)


def test_defaults_are_not_stored() -> None:
    assert timing().fields() == {"cron": "* * * * *"}


def test_equal_definitions_have_one_fingerprint_and_others_another() -> None:
    fields = timing().fields()
    assert fingerprint(fields) == fingerprint(dict(reversed(fields.items())))
    names = {fingerprint(timing(**said).fields()) for said in ({}, {"every": 60}, {"jitter": 1}, {"tz": "Asia/Dhaka"})}
    assert len(names) == 4
    assert fingerprint({"a": "1b=", "c": ""}) != fingerprint({"a": "1", "b": "c"})


def spec(id: str, concurrency_key: str | None = None) -> ScheduleSpec:
    options = JobOptions(concurrency_key=concurrency_key)
    return ScheduleSpec(id, timing(), prepare(options, "task", (), None, 1000))


def test_a_schedule_has_one_partition_for_every_node_and_lives_where_its_concurrency_key_does() -> None:
    space = Space(ClientSettings(), {"default": 4})
    assert {spec(f"s{n}").place(space).number for n in range(100)} == {0, 1, 2, 3}
    assert spec("nightly").place(Space(ClientSettings(), {"default": 1})).number == 0
    for n in range(20):
        assert spec(f"s{n}", "customer-7").place(space).number == partition_of_key("customer-7", 4)


def test_an_interval_counts_from_its_start_else_from_the_epoch() -> None:
    assert timing(every=60).next_after(T0 + 1) == T0 + MINUTE
    assert timing(every=60, start=T0 / 1000 + 7).next_after(0) == T0 + 7000
    assert timing(every=60, start=T0 / 1000 + 7).next_after(T0 + 7000) == T0 + 67_000


def test_start_and_end_bound_the_instants_and_belong_to_them() -> None:
    bounded = timing(start=T0 / 1000, end=T0 / 1000 + 120)
    assert bounded.instants(0, T0 + DAY, 99) == [T0, T0 + MINUTE, T0 + 2 * MINUTE]
    assert bounded.next_after(T0 + 2 * MINUTE) is None


# ---- what fires


def test_before_its_instant_nothing_fires() -> None:
    assert plan_firing(timing(), T0 + 1, T0).occurrences == ()
    assert plan_firing(timing(), T0 + 1, T0).next_ms == T0 + 1


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_on_time_is_on_time_whatever_the_policy(misfire: str) -> None:
    firing = plan_firing(timing(misfire=misfire), T0, T0 + GRACE_MS)
    assert (list(firing.occurrences), firing.missed, firing.next_ms) == ([Occurrence(T0, False)], 0, T0 + MINUTE)


def test_the_policies_for_what_was_missed() -> None:
    now = T0 + 10 * MINUTE + 30_000
    missed = [T0 + n * MINUTE for n in range(11)]

    def late(**said: Any) -> list[int]:
        firing = plan_firing(timing(**said), T0, now)
        assert firing.missed == 11
        assert firing.next_ms == T0 + 11 * MINUTE
        assert all(each.late for each in firing.occurrences)
        return [each.instant_ms for each in firing.occurrences]

    assert late(misfire="skip") == []
    assert late(misfire="once") == missed[-1:]
    assert late(misfire="all") == missed
    assert late(misfire="all", misfire_limit=4) == missed[-4:]
    assert late(misfire="all", misfire_window=150) == missed[-3:]
    assert late(misfire="once", misfire_window=10) == []


def test_what_a_living_scheduler_was_late_for_was_not_missed() -> None:
    firing = plan_firing(timing(cron="* * * * * *", misfire="skip"), T0, T0 + 4200, 5000)
    assert [each.instant_ms for each in firing.occurrences] == [T0 + n * 1000 for n in range(5)]
    assert firing.missed == 0


def test_one_firing_is_bounded_and_the_rest_is_due_at_once() -> None:
    fast = timing(every=0.001)
    firing = plan_firing(fast, T0, T0 + 500)
    assert len(firing.occurrences) == MOST_AT_ONCE
    assert firing.next_ms == T0 + MOST_AT_ONCE


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
@pytest.mark.parametrize(
    "said", [{}, {"cron": "* * * * * *"}, {"every": 1}, {"cron": "0 2 * * *", "tz": "Europe/Berlin"}]
)
def test_one_stored_a_year_ago_is_back_on_its_grid_at_once(misfire: str, said: dict[str, Any]) -> None:
    made = timing(misfire=misfire, **said)
    first = made.next_after(T0 - 365 * DAY)
    assert first is not None
    began = time.perf_counter()
    firing = plan_firing(made, first, T0 + 500)
    assert time.perf_counter() - began < 0.5
    assert firing.missed >= 364
    assert firing.next_ms is not None and firing.next_ms > T0


def test_a_lost_next_instant_is_found_again_and_nothing_fires() -> None:
    assert plan_firing(timing(), None, T0 + 1) == plan_firing(timing(), T0 + MINUTE, T0 + 1)


def test_the_end_ends_it() -> None:
    ending = timing(end=T0 / 1000 + 60, misfire="all")
    firing = plan_firing(ending, T0, T0 + DAY)
    assert [each.instant_ms for each in firing.occurrences] == [T0, T0 + MINUTE]
    assert (firing.missed, firing.next_ms) == (2, None)


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 1 * * *", "0 2 * * 0", "15 */3 * * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.sampled_from(["skip", "once", "all"]),
    st.lists(st.integers(0, 6 * HOUR), min_size=1, max_size=30),
)
def test_no_instant_is_lost_or_doubled_however_one_looks(cron: str, tz: str, misfire: str, gaps: list[int]) -> None:
    """Each instant either fires or is counted; those that fire are a subset of the grid, in order, once."""
    made = timing(cron=cron, tz=tz, misfire=misfire, misfire_limit=10_000)
    now, next_ms = T0, made.next_after(T0)
    fired: list[int] = []
    missed = late = 0
    for gap in gaps:
        now += gap
        firing = plan_firing(made, next_ms, now)
        fired += [each.instant_ms for each in firing.occurrences]
        late += sum(each.late for each in firing.occurrences)
        missed += firing.missed
        next_ms = firing.next_ms
    grid = made.instants(T0 + 1, now, 100_000)
    assert fired == sorted(set(fired)) and set(fired) <= set(grid)
    assert len(fired) - late + missed == len(grid)
    assert next_ms is not None and next_ms > now


def test_jitter_is_the_same_everywhere_and_spreads() -> None:
    made = timing(jitter=10)
    starts = [start_ms(made, "s", T0 + n * MINUTE) - T0 - n * MINUTE for n in range(200)]
    assert starts == [start_ms(made, "s", T0 + n * MINUTE) - T0 - n * MINUTE for n in range(200)]
    assert min(starts) >= 0 and max(starts) <= 10_000 and len(set(starts)) > 150
    assert start_ms(timing(), "s", T0) == T0


def test_a_watch_forgives_only_while_it_looked_without_a_break() -> None:
    watch = Watch(2)
    assert watch.looked(100) == GRACE_MS
    graces = [watch.looked(100 + n) for n in range(1, 5)]
    assert graces == [1000, 2000, 3000, 4000]
    assert watch.looked(110) == GRACE_MS
    for n in range(1, 200):
        grace = watch.looked(110 + n)
    assert grace == 60_000
