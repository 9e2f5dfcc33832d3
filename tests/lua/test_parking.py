"""Concurrency keys: a job that finds no slot is parked, and every end of a holder calls the next one."""

from collections.abc import Callable
from typing import Any

import pytest

from rzsched import calls
from tests.lua.test_limits import claim, finish, ids, succeeded
from tests.states import Stage, outcome

KEYED = {"concurrency_key": "k"}


def parked(stage: Stage, key: str = "k") -> list[str]:
    return [job_id.decode() for job_id in stage.raw.zrange(f"rz:{{q.0}}:parked:{key}", 0, -1)]


def hold_and_park(stage: Stage, count: int = 1, **options: Any) -> tuple[calls.Claimed, list[str]]:
    """Have one job of the key run, and others parked."""
    stage.enqueue(**KEYED, **options)
    (run,) = claim(stage)
    waiting = [stage.enqueue(**KEYED, **options) for _ in range(count)]
    assert claim(stage, "parker") == []
    assert parked(stage) == waiting
    return run, waiting


def test_a_job_without_a_slot_is_parked_and_blocks_nobody(stage: Stage) -> None:
    held, first, second = (stage.enqueue(**KEYED) for _ in range(3))
    other, free = stage.enqueue(concurrency_key="other"), stage.enqueue()
    runs = claim(stage, most=3)
    assert ids(runs) == [held, other, free]
    assert parked(stage) == [first, second]
    counts = stage.check().counts
    assert (counts.running, counts.parked) == (3, 2)
    status = stage.status(first)
    assert status is not None
    assert (status.state, status.attempts, status.parked, status.concurrency_key) == ("PENDING", 0, True, "k")
    assert status.next_run_at is not None
    assert stage.run(calls.measure(stage.place)).counters["parked"] == 2


def test_many_parked_jobs_do_not_keep_a_claim_from_those_behind_them(stage: Stage) -> None:
    stage.enqueue_many([KEYED] * 50)
    free = stage.enqueue()
    assert len(claim(stage, most=1)) == 1
    assert ids(claim(stage, most=5)) == [free]
    assert len(parked(stage)) == 49


def test_the_limit_of_a_key_may_be_more_than_one(stage: Stage) -> None:
    jobs = stage.enqueue_many([{**KEYED, "concurrency_limit": 3}] * 5).ids
    runs = claim(stage)
    assert (ids(runs), parked(stage)) == (jobs[:3], jobs[3:])
    assert ids(finish(stage, *succeeded(runs))) == jobs[3:]


def _recover_after_lease(stage: Stage, job_id: str) -> object:
    stage.lose_lease(job_id)
    return stage.recover()


ENDS: dict[str, Callable[[Stage, calls.Claimed], object]] = {
    **{
        what: lambda stage, run, what=what: finish(stage, outcome(what, run, "x", "60000"), most=0)  # type: ignore[misc]
        for what in ("SUCCEEDED", "CANCELLED", "RETRY", "DEAD", "RELEASED")
    },
    "UNKNOWN": lambda stage, run: finish(stage, outcome("UNKNOWN", run, "x", "60000", "60000"), most=0),
    "recovered": lambda stage, run: _recover_after_lease(stage, run.id),
    "crashed": lambda stage, run: stage.recover("w"),
    "released": lambda stage, run: stage.release("w"),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_holder_calls_the_next_one(stage: Stage, end: str) -> None:
    run, (first, second) = hold_and_park(stage, 2)
    ENDS[end](stage, run)
    assert parked(stage) == [second]
    assert first in ids(claim(stage, "next", most=1 if end == "SUCCEEDED" else 10))
    stage.check()


def test_a_called_job_has_its_slot_already(stage: Stage) -> None:
    run, (called,) = hold_and_park(stage)
    finish(stage, *succeeded([run]), most=0)
    late = stage.enqueue(**KEYED, priority=0)
    assert ids(claim(stage, "next")) == [called]
    assert parked(stage) == [late]


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_a_called_job_that_ends_unrun_calls_the_next_one(stage: Stage, end: str) -> None:
    run, (called, last) = hold_and_park(stage, 2, expires=60)
    finish(stage, *succeeded([run]), most=0)
    if end == "cancel":
        assert stage.cancel(called) == ("CANCELLED", "")
        assert ids(claim(stage, "next")) == [last]
    else:
        stage.now_ms += 120_000
        claim(stage, "next")
        claim(stage, "next")
        assert (stage.state(called), stage.state(last)) == ("CANCELLED", "CANCELLED")
    assert not stage.raw.exists("rz:{q.0}:parked:k")


def test_a_parked_job_is_cancelled_where_it_is(stage: Stage) -> None:
    run, (first, second) = hold_and_park(stage, 2)
    assert stage.cancel(first) == ("CANCELLED", "")
    assert (stage.state(first), parked(stage)) == ("CANCELLED", [second])
    assert ids(finish(stage, *succeeded([run]))) == [second]


def test_what_was_due_first_is_called_first(stage: Stage) -> None:
    later = stage.enqueue(**KEYED, delay=2)
    run, (now,) = hold_and_park(stage)
    stage.now_ms += 3000
    stage.promote()
    claim(stage, "parker")
    assert parked(stage) == [now, later]
    (run,) = finish(stage, *succeeded([run]))
    assert (run.id, run.attempt) == (now, 1)


def test_a_late_success_withdraws_its_parked_redelivery(stage: Stage) -> None:
    run, (waiting,) = hold_and_park(stage)
    stage.lose_lease(run.id)
    stage.recover()
    assert ids(claim(stage, "other")) == [waiting]
    assert parked(stage) == [run.id]
    assert stage.finish("w", outcome("SUCCEEDED", run)).notes == {run.id: "LATE"}
    assert stage.state(run.id) == "SUCCEEDED"
    assert parked(stage) == []


def test_a_stale_finish_frees_no_slot(stage: Stage) -> None:
    run, (waiting,) = hold_and_park(stage)
    stage.lose_lease(run.id)
    stage.recover()
    claim(stage, "other")
    assert stage.finish("w", outcome("RETRY", run, "x", "1000")).notes == {run.id: "STALE"}
    assert stage.state(waiting) == "RUNNING"
    assert parked(stage) == [run.id]


def test_a_slot_is_not_lost_with_a_record_that_a_foreign_hand_deleted(bare_stage: Stage) -> None:
    run, (waiting,) = hold_and_park(bare_stage)
    bare_stage.raw.delete(bare_stage.place.job(run.id))
    last = bare_stage.enqueue(**KEYED)
    assert ids(claim(bare_stage, "next")) == [waiting]
    assert parked(bare_stage) == [last]


def test_a_replayed_job_asks_for_a_slot_again(stage: Stage) -> None:
    stage.enqueue(**KEYED)
    (run,) = claim(stage)
    finish(stage, outcome("DEAD", run, "x"), most=0)
    holder = stage.enqueue(**KEYED)
    assert ids(claim(stage)) == [holder]
    stage.over_dead("replay", [run.id])
    assert claim(stage) == []
    assert parked(stage) == [run.id]


def test_nothing_is_left_of_a_key_at_the_end(stage: Stage) -> None:
    run, _ = hold_and_park(stage, 3)
    runs = [run]
    while runs:
        runs = list(finish(stage, *succeeded(runs)))
    left = {key.decode() for key in stage.raw.scan_iter("rz:{q.0}:*") if b":job:" not in key and b":ready:" not in key}
    assert left == {"rz:{q.0}:stats", "rz:{q.0}:fence"}


@pytest.mark.parametrize("key", ["a:b", "{x}", "x}y{", "*", "é\n", "\x00", "../x", "dead/1-1", "k" * 512])
def test_any_key_of_the_users_making_is_a_parking_place(stage: Stage, key: str) -> None:
    first, second = (stage.enqueue(concurrency_key=key) for _ in range(2))
    (run,) = claim(stage)
    assert stage.check().counts.parked == 1
    assert run.id == first
    assert ids(finish(stage, *succeeded([run]))) == [second]
