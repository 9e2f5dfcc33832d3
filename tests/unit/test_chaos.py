"""The chaos run's plan and books: pure, and hard to fool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from bench.chaos.books import Books, Happening, read_runs
from bench.chaos.plan import KINDS, UP_AGAIN_S, WITH_COPIES, plan

LEASE_S = 3.0
TARGETS = {"worker": ["w1", "w2"], "supervisor": ["pair"], "scheduler": ["s1", "s2"], "server": ["server"],
           "proxied": ["w2"], "shifted": ["w1"]}  # fmt: skip
A, B = 11, 12


# ---- the plan


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert plan(7, 120, TARGETS) == plan(7, 120, TARGETS)
    assert plan(7, 120, TARGETS) != plan(8, 120, TARGETS)


@pytest.mark.parametrize("seed", range(20))
def test_a_longer_run_begins_as_a_shorter_one(seed: int) -> None:
    short = plan(seed, 60, TARGETS)
    assert plan(seed, 120, TARGETS)[: len(short)] == short


@pytest.mark.parametrize("kinds", [KINDS, WITH_COPIES])
@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_hit_twice_at_once_and_all_is_healed_in_time(seed: int, kinds: Any) -> None:
    free: dict[str, float] = {}
    for fault in plan(seed, 180, TARGETS, kinds):
        spec = kinds[fault.kind]
        assert fault.target in TARGETS[spec.role]
        assert spec.shortest_s - 0.001 <= fault.for_s <= spec.longest_s + 0.001
        assert fault.at_s >= free.get(fault.target, 0.0)
        assert fault.at_s + fault.for_s <= 180
        free[fault.target] = fault.at_s + fault.for_s + UP_AGAIN_S - 0.01


def test_a_run_of_two_minutes_meets_every_kind() -> None:
    assert {fault.kind for seed in range(3) for fault in plan(seed, 120, TARGETS)} == set(KINDS)


def test_a_kind_without_a_target_is_left_out() -> None:
    targets = {role: names for role, names in TARGETS.items() if role != "proxied"}
    assert "swallow_bytes" not in {fault.kind for fault in plan(1, 300, targets)}


# ---- the books


def line(event: str, job: str, fence: int, at: float, pid: int = A, attempt: int = 1, key: str = "") -> dict[str, Any]:
    return {"event": event, "job": job, "fence": fence, "at": at, "pid": pid, "attempt": attempt, "key": key}


def run(job: str, fence: int, begin: float, end: float | None, **more: Any) -> list[dict[str, Any]]:
    """Write a run's lines: of one that never ended where `end` is None."""
    how = more.pop("how", "end")
    begun = [line("start", job, fence, begin, **more)]
    return begun if end is None else [*begun, line(how, job, fence, end, **more)]


def books(lines: Iterable[dict[str, Any]], happened: Iterable[Happening] = (), accepted: Iterable[str] = (),
          cancelled: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    return Books(frozenset(accepted), frozenset(cancelled), read_runs(lines), list(happened), LEASE_S,
                 **more).figures()  # fmt: skip


def hit(kind: str, began: float, ended: float, *pids: int) -> Happening:
    return Happening(kind, began, ended, frozenset(pids) if pids else None)


def test_books_without_faults_balance() -> None:
    figures = books(run("q.0.a", 1, 1, 2) + run("q.0.b", 2, 1, 2), accepted=["q.0.a", "q.0.b", "q.0.c"],
                    cancelled=["q.0.c"])  # fmt: skip
    assert (figures["lost"], figures["ran"], figures["unexplained"], figures["ran_though_cancelled"]) == (0, 2, 0, 0)


@pytest.mark.parametrize("lines", [[], run("q.0.a", 1, 1, None), run("q.0.a", 1, 1, 2, how="failed")])
def test_what_was_accepted_and_never_ran_to_the_end_is_lost(lines: list[dict[str, Any]]) -> None:
    assert books(lines, accepted=["q.0.a"])["first_lost"] == ["q.0.a"]


def test_what_was_cancelled_and_ran_all_the_same_is_found() -> None:
    assert books(run("q.0.a", 1, 1, 2), accepted=["q.0.a"], cancelled=["q.0.a"])["ran_though_cancelled"] == 1


TWICE = run("q.0.a", 1, 10, 12, pid=A) + run("q.0.a", 2, 15, 16, pid=B, attempt=2)


@pytest.mark.parametrize(
    "happened",
    [
        hit("stop_worker", 11, 14.5, A),
        hit("kill_worker", 12.1, 12.1, A),
        hit("kill_server", 11, 14),
        hit("swallow_bytes", 9, 14, A),
    ],
)
def test_a_second_run_belongs_to_the_fault_that_took_the_lease_of_the_first(happened: Happening) -> None:
    figures = books(TWICE, [happened])
    assert figures["ended_twice"] == {happened.kind: 1}
    assert figures["unexplained"] == 0


@pytest.mark.parametrize(
    "happened",
    [
        hit("stop_worker", 11, 14.5, B),  # another process
        hit("stop_worker", 4, 9, A),  # over before the first run began
        hit("stop_worker", 15.5, 19, A),  # the second had begun
        hit("stop_worker", 11, 12, A),  # shorter than a lease may bear
        hit("kill_server", 11, 12),
        hit("nap_worker", 11, 14, A),
        hit("flush_scripts", 11, 14),
        hit("kill_clients", 11, 14),
        hit("destroy_groups", 11, 14),
        hit("kill_scheduler", 11, 14, A),
        hit("restart_worker", 11, 12, A),  # told to end in order: that costs no attempt
    ],
)
def test_what_took_no_lease_explains_no_second_run(happened: Happening) -> None:
    figures = books(TWICE, [happened])
    assert figures["unexplained"] == 1
    assert figures["ended_twice"] == {"unexplained": 1}


def test_a_run_handed_back_at_an_end_in_order_begins_again_with_the_same_attempt() -> None:
    lines = run("q.0.a", 1, 10, None, pid=A) + run("q.0.a", 2, 13, 14, pid=B, attempt=1)
    figures = books(lines, [hit("restart_worker", 12, 13, A)])
    assert (figures["begun_again"], figures["unexplained"]) == ({"restart_worker": 1}, 0)


def test_a_failure_by_design_is_followed_by_a_retry() -> None:
    lines = run("q.0.a", 1, 10, 11, how="failed") + run("q.0.a", 2, 12, 13, attempt=2)
    figures = books(lines)
    assert (figures["begun_again"], figures["ended_twice"], figures["unexplained"]) == ({"retry": 1}, {}, 0)


def test_a_worker_frozen_between_claim_and_start_may_begin_last() -> None:
    lines = run("q.0.a", 1, 16, 17, pid=A) + run("q.0.a", 2, 13, 14, pid=B, attempt=2)
    assert books(lines, [hit("stop_worker", 10, 15.9, A)])["unexplained"] == 0


def test_two_runs_of_one_concurrency_key_at_once_are_found() -> None:
    lines = run("q.0.a", 1, 10, 12, key="k") + run("q.0.b", 2, 11, 13, key="k")
    assert books(lines)["together_in_spite_of_key"] == 1
    assert books(lines, [hit("stop_worker", 8, 11, A)])["together_in_spite_of_key"] == 0
    apart = run("q.0.a", 1, 10, 12, key="k") + run("q.0.b", 2, 12, 13, key="k")
    assert books(apart)["together_in_spite_of_key"] == 0


def test_an_occurrence_that_never_ran_is_found() -> None:
    lines = run("q.0.tick-1000", 1, 1, 2) + run("q.0.tick-3000", 2, 3, 4)
    figures = books(lines, schedules={"tick": 1000})
    assert (figures["occurrences"], figures["occurrences_missing"]) == ({"tick": 2}, ["tick 2000"])
    assert figures["ran_unanswered"] == 0


def test_the_time_from_a_death_to_the_next_run_is_told_also_where_nothing_else_went_wrong() -> None:
    lines = run("q.0.a", 1, 10, None, pid=A) + run("q.0.a", 2, 14.5, 15, pid=B, attempt=2)
    death = hit("kill_worker", 11, 11, A)
    figures = books(lines, [death])
    assert figures["longest_rerun_s"] == figures["longest_rerun_in_calm_s"] == {"kill_worker": 3.5}
    figures = books(lines, [death, hit("kill_server", 12, 13)])
    assert (figures["longest_rerun_s"], figures["longest_rerun_in_calm_s"]) == ({"kill_worker": 3.5}, {})
