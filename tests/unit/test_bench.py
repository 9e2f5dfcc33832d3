"""The arithmetic of the measurements, and that each of them can be started."""

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import ledger
from bench.books import Books
from bench.drain import medians
from bench.enqueue import ratio_of_rounds
from bench.figures import (
    CommandStat,
    Target,
    calls_in_all,
    missed,
    percentile,
    percentile_of_counts,
    read_command_stats,
    usec_in_all,
    without,
)
from bench.herd import slow_calls
from bench.load import operation_figures
from bench.memory import text_for
from rzsched import State
from rzsched.codec import encode_payload

QUESTIONS = ["drain_async", "drain_plain", "enqueue", "latency", "memory", "herd", "load", "crons", "durability",
             "cluster"]
INFO = {
    "cmdstat_evalsha": {"calls": 10, "usec": 1000},
    "cmdstat_hset": {"calls": 50, "usec": 300},
    "cmdstat_client|id": {"calls": 1, "usec": 4},
    "cmdstat_config|resetstat": {"calls": 1, "usec": 90},
    "cmdstat_info": {"calls": 3, "usec": 500},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_measurement_says_what_it_asks_and_what_must_be_met(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"bench.{name}")
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert " ".join(module.QUESTION.split()) in " ".join(shown.split())
    assert "--server {redis,valkey,redis62}" in shown
    assert module.TARGETS


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (1, 1.0), (50, 50.0), (50.5, 51.0), (99, 99.0), (100, 100.0)]
)
def test_percentiles_are_by_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


def test_one_value_is_every_percentile() -> None:
    assert percentile([7.0], 1) == percentile([7.0], 99) == 7.0


@pytest.mark.parametrize("call", [lambda: percentile([], 50), lambda: percentile_of_counts({}, 50)])
def test_no_values_have_no_percentile(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError, match="no values"):
        call()


@given(st.dictionaries(st.integers(0, 1000).map(float), st.integers(1, 20), min_size=1), st.integers(1, 100))
def test_counted_values_have_the_percentiles_of_the_values_one_by_one(counts: dict[float, int], percent: int) -> None:
    values = [value for value, count in counts.items() for _ in range(count)]
    found = percentile_of_counts(counts, percent)
    assert found == percentile(values, percent)
    assert sum(value <= found for value in values) >= math.ceil(percent / 100 * len(values))


def test_command_statistics_leave_out_what_the_measurement_itself_sends() -> None:
    assert read_command_stats(INFO) == {
        "evalsha": CommandStat(10, 1000.0),
        "hset": CommandStat(50, 300.0),
        "client|id": CommandStat(1, 4.0),
    }


def test_every_call_counts_but_time_inside_a_script_only_once() -> None:
    stats = read_command_stats(INFO)
    assert calls_in_all(stats) == 61
    assert usec_in_all(stats) == 1004.0


def test_own_calls_are_taken_out_at_their_mean_cost() -> None:
    stats = {"hget": CommandStat(40, 80.0), "evalsha": CommandStat(1, 5.0)}
    assert without(stats, "hget", 30) == {"hget": CommandStat(10, 20.0), "evalsha": CommandStat(1, 5.0)}
    assert without(stats, "hget", 50)["hget"] == CommandStat(0, 0.0)
    assert without(stats, "get", 5)["get"] == CommandStat(0, 0.0)


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (Target("x", 5), 5, True),
        (Target("x", 5), 5.01, False),
        (Target("x", 5, at_least=True), 5, True),
        (Target("x", 5, at_least=True), 4.99, False),
        (Target("x", 5), float("nan"), False),
    ],
)
def test_a_target_is_met_at_its_limit_and_missed_beyond(target: Target, value: float, met: bool) -> None:
    assert target.is_met({"x": value}) is met
    assert missed([target], {"x": value}) == ([] if met else [str(target)])


def test_a_target_says_what_must_be_reached() -> None:
    assert str(Target("ratio", 0.55, at_least=True)) == "ratio >= 0.55"
    assert str(Target("p99_ms", 5)) == "p99_ms <= 5"


def test_figures_of_rounds_become_medians_and_ratios_are_of_one_round() -> None:
    assert medians([{"a": 3, "b": 1.0}, {"a": 1, "b": 9.0}, {"a": 2, "b": 5.0}]) == {"a": 2, "b": 5.0}
    assert ratio_of_rounds([10, 30], [1, 2]) == [10, 15]


def test_the_slow_log_is_sorted_by_script_and_other_commands_are_left_out() -> None:
    entries: list[dict[str, Any]] = [
        {"command": b"EVALSHA abc 4 rz:{q.0}:", "duration": 12_500},
        {"command": b"evalsha abc 4", "duration": 3_000},
        {"command": b"EVALSHA def 4", "duration": 2_000},
        {"command": b"FLUSHALL", "duration": 90_000},
    ]
    assert slow_calls(entries, {"abc": "promote"}) == {"promote": [12.5, 3.0], "def": [2.0]}


@pytest.mark.parametrize("size", [40, 60, 200, 300])
def test_the_payload_has_the_size_that_is_asked_for(size: int) -> None:
    assert len(encode_payload((text_for(size),), None, 1 << 20)) == size


def test_statistics_of_locust_are_summed_up_per_operation() -> None:
    entries = [
        {"name": "now", "num_requests": 4, "num_failures": 1, "response_times": {"1": 3, "9": 1}},
        {"name": "bulk", "num_requests": 6, "num_failures": 0, "response_times": {"20": 6}},
    ]
    figures = operation_figures(entries, 5)
    assert (figures["requests_per_s"], figures["failures"]) == (2, 1)
    assert figures["operations"]["now"] == {"requests": 4, "failures": 1, "p50_ms": 1.0, "p99_ms": 9.0}


def test_books_balance_when_all_ran_or_was_cancelled_on_request() -> None:
    states = {"a": State.SUCCEEDED, "b": State.CANCELLED, "c": State.CANCELLED}
    books = Books.of(["a", "b", "c"], ["b", "c"], ["a", "c"], states).figures()
    assert (books["accepted"], books["ran"], books["cancelled"], books["lost"]) == (3, 2, 2, 0)


@pytest.mark.parametrize(
    ("state", "runs"),
    [
        (State.SUCCEEDED, []),  # the server says so, but nobody saw it run
        (State.CANCELLED, []),  # nobody asked for that
        (State.PENDING, []),
        (State.DEAD, ["a"]),
        (None, ["a"]),  # the server knows nothing of it
    ],
)
def test_what_was_accepted_and_did_not_end_well_is_lost(state: State | None, runs: list[str]) -> None:
    books = Books.of(["a"], [], runs, {"a": state}).figures()
    assert books["lost"] == 1
    assert books["first_lost"] == [f"a {state}"]


def test_books_tell_second_runs_and_runs_that_nobody_was_promised() -> None:
    books = Books.of(["a"], [], ["a", "a", "x"], {"a": State.SUCCEEDED}).figures()
    assert (books["lost"], books["ran_twice"], books["ran_though_not_accepted"]) == (0, 1, 1)


def test_a_ledger_gives_back_the_lines_of_all_its_writers(tmp_path: Path) -> None:
    ledger.Ledger(tmp_path, ledger.RUNS).write("a", "b")
    ledger.Ledger(tmp_path, ledger.RUNS).write("c")
    ledger.Ledger(tmp_path, ledger.ACCEPTED).write("x")
    assert list(ledger.read(tmp_path, ledger.RUNS)) == ["a", "b", "c"]
