"""A claim that finds too few ready jobs takes due ones that no scheduler has moved yet."""

from typing import Any

import pytest

from rzsched import calls
from rzsched.calls import Claimed
from rzsched.errors import ServerUnsuitable
from rzsched.growth import configure
from tests.states import Stage, outcome, retry_waiting, running, start, succeeded

SECOND = 1000


def ids(runs: list[Claimed]) -> list[str]:
    return [run.id for run in runs]


def due(stage: Stage, **options: Any) -> str:
    """Write a job that is due, and in the scheduled set still."""
    job_id = stage.enqueue(delay=1, **options)
    stage.now_ms += SECOND
    return job_id


def test_due_jobs_run_behind_ready_ones_in_the_order_of_their_instants(stage: Stage) -> None:
    last, first = stage.enqueue(delay=3), stage.enqueue(delay=2, priority=9)
    later = stage.enqueue(delay=4)
    stage.now_ms += 3 * SECOND
    ready = stage.enqueue(priority=9)
    assert ids(stage.claim("w")) == [ready, first, last]
    assert [stage.state(each) for each in (ready, first, last, later)] == ["RUNNING"] * 3 + ["PENDING"]
    assert stage.raw.zrange(stage.place.scheduled, 0, -1) == [later.encode()]
    assert stage.check().counts.running == 3


def test_what_is_taken_is_written_down_as_if_it_had_been_moved_and_claimed(stage: Stage) -> None:
    moved, taken = stage.enqueue(delay=1), stage.enqueue(delay=2)
    stage.now_ms += SECOND
    stage.promote()
    stage.now_ms += SECOND
    runs = dict(zip((moved, taken), stage.claim("w"), strict=True))
    assert stage.job(taken).keys() == stage.job(moved).keys()
    assert stage.job(taken)["due_at"] == stage.now
    assert stage.job(taken)["entry"] == runs[taken].entry
    assert stage.raw.get(stage.place.lock(taken)) == f"w#{runs[taken].fence}".encode()
    for run in runs.values():
        assert dict(zip(run.flat[::2], run.flat[1::2], strict=True))[b"due_at"] == stage.job(run.id)["due_at"].encode()
    assert stage.finish("w", *(outcome("SUCCEEDED", run) for run in runs.values())).notes == {}
    assert stage.check().counts.ended == 2


def test_a_finish_takes_what_is_due(stage: Stage) -> None:
    run = start(stage, "w")
    job_id = due(stage)
    finished = stage.finish("w", outcome("SUCCEEDED", run), limit=5)
    assert ids(finished.claimed) == [job_id]
    assert stage.check().counts.running == 1


def test_no_more_are_taken_than_there_is_room_for(stage: Stage) -> None:
    stage.enqueue_many([{"delay": 1}] * 5)
    stage.now_ms += SECOND
    assert len(stage.claim("w", 2)) == 2
    assert stage.raw.zcard(stage.place.scheduled) == 3
    assert len(stage.claim("w", 9)) == 3


def test_a_retry_that_has_waited_is_taken(stage: Stage) -> None:
    job_id = retry_waiting(stage)
    stage.now_ms += 60 * SECOND
    (run,) = stage.claim("w")
    assert (run.id, run.attempt, stage.state(job_id)) == (job_id, 2, "RUNNING")
    stage.lose_lease(job_id)
    assert stage.recover() == [(job_id, "RETRY", "w")]


@pytest.mark.parametrize(("limits", "gate", "runs"), [
    ({"paused": "1"}, "PAUSED", 0), ({"concurrency": "2"}, "FULL", 2), ({"rate": "1", "rate_ms": "60000"}, "RATED", 1),
])  # fmt: skip
def test_the_limits_of_the_queue_hold(stage: Stage, limits: dict[str, str], gate: str, runs: int) -> None:
    stage.run(configure(stage.place, limits, stage.now))
    stage.enqueue_many([{"delay": 1}] * 5)
    stage.now_ms += SECOND
    claims = stage.run(calls.claim(stage.place, "w", 1000, 5, "", (), stage.now))
    assert (len(claims), claims.gate) == (runs, gate)
    assert len(stage.claim("other")) == 0
    assert stage.raw.zcard(stage.place.scheduled) == 5 - runs


def test_slots_of_a_concurrency_key_hold(stage: Stage) -> None:
    first, second, third = (stage.enqueue(delay=1 + number, concurrency_key="k") for number in range(3))
    plain = stage.enqueue(delay=4)
    stage.now_ms += 4 * SECOND
    runs = stage.claim("w", 2)
    assert set(ids(runs)) == {first, plain}
    assert stage.check().counts.parked == 2
    (held,) = [run for run in runs if run.id == first]
    assert ids(stage.finish("w", outcome("SUCCEEDED", held), limit=1).claimed) == [second]
    assert stage.job(third)["entry"] == "parked/k"


def test_what_ends_unrun_makes_room_for_those_behind_it(stage: Stage) -> None:
    ran = start(stage, "w", idempotency_key="k")
    stage.finish("w", outcome("SUCCEEDED", ran, c="k"))
    stage.raw.delete(stage.place.idem(b"k"))
    again = stage.enqueue(delay=1, idempotency_key="k")
    expired = stage.enqueue(delay=2, expires=1)
    behind = [stage.enqueue(delay=3 + number) for number in range(2)]
    stage.now_ms += 10 * SECOND
    assert ids(stage.claim("w", 2)) == behind
    assert [stage.state(each) for each in (again, expired)] == ["SUCCEEDED", "CANCELLED"]
    assert stage.check().counts.running == 2


def many_expired(stage: Stage) -> str:
    """Write more than one call ends, and a good job behind them; give that one's id."""
    stage.enqueue_many([{"delay": 1, "expires": 1}] * 300)
    good = stage.enqueue(delay=2)
    stage.now_ms += 60 * SECOND
    return good


def test_a_call_that_ends_very_many_says_that_there_may_be_more(stage: Stage) -> None:
    good = many_expired(stage)
    claims = stage.run(calls.claim(stage.place, "w", 1000, 100, "", (), stage.now))
    assert (list(claims), claims.gate, claims.look_s) == ([], "MORE", 0)
    assert stage.raw.zcard(stage.place.scheduled) == 101
    claims = stage.run(calls.claim(stage.place, "w", 1000, 100, "", (), stage.now))
    assert (ids(claims), claims.gate) == ([good], "")


def test_a_finish_that_ends_very_many_says_so_too(stage: Stage) -> None:
    run = start(stage, "w")
    good = many_expired(stage)
    finished = stage.finish("w", outcome("SUCCEEDED", run), limit=100)
    assert (finished.notes, list(finished.claimed), finished.claimed.gate) == ({}, [], "MORE")
    assert ids(stage.finish("w", limit=100).claimed) == [good]


def test_an_idle_worker_that_meets_very_many_is_told_that_there_may_be_more(stage: Stage) -> None:
    good = many_expired(stage)
    promotion, claims = stage.promote_claim("w", 8)
    assert (promotion.count, list(claims), claims.gate) == (301, [], "MORE")
    assert ids(stage.claim("w", 200)) == [good]


def test_a_job_under_a_foreign_lock_is_pending_until_it_is_gone(stage: Stage) -> None:
    job_id = due(stage)
    stage.raw.set(stage.place.lock(job_id), "somebody")
    assert stage.claim("w") == []
    assert stage.job(job_id)["entry"].startswith("5/")
    stage.raw.delete(stage.place.lock(job_id))
    assert stage.recover("w") == [(job_id, "RETURNED", "w")]
    assert ids(stage.claim("w")) == [job_id]


def test_what_a_foreign_hand_scheduled_neither_runs_nor_stays(stage: Stage) -> None:
    alive, ended = running(stage), succeeded(stage)
    stage.raw.zadd(stage.place.scheduled, {alive: 1, ended: 1, b"\xff\x00": 1})
    good = stage.enqueue(delay=1)
    stage.raw.zincrby(stage.place.scheduled, 0.25, good)
    stage.now_ms += 2 * SECOND
    assert ids(stage.claim("w")) == [good]
    assert stage.job(good)["due_at"] == str(stage.now_ms - SECOND)
    assert stage.raw.zcard(stage.place.scheduled) == 0
    assert [stage.state(each) for each in (alive, ended)] == ["RUNNING", "SUCCEEDED"]
    assert stage.check().counts.foreign == 1


def test_an_error_halfway_loses_nothing(stage: Stage) -> None:
    """A dead stream of another type: the id without a record can't be buried, and the call ends in the middle."""
    begun, held = due(stage), due(stage, concurrency_key="k")
    stage.raw.zadd(stage.place.scheduled, {"q.0.gone": stage.now_ms})
    behind = due(stage)
    stage.raw.set(stage.place.dead, "of another type")
    with pytest.raises(ServerUnsuitable):
        stage.claim("w")
    stage.raw.delete(stage.place.dead)
    assert stage.promote().count == 4
    runs = stage.claim("other")
    assert set(ids(runs)) == {held, behind}
    stage.lose_lease(begun)
    assert stage.recover() == [(begun, "RETRY", "other")]
    assert [(run.id, run.attempt) for run in stage.claim("other")] == [(begun, 2)]
    assert stage.check().counts.running == 3
