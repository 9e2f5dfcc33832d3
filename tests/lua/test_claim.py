"""Claim gives a worker jobs, each under a lock and a fence of its own."""

import pytest

from rzsched import calls
from rzsched.calls import Claimed
from tests.states import Stage, cancelled, outcome, running, start


def ids(runs: list[Claimed]) -> list[str]:
    return [run.id for run in runs]


def test_a_claim_locks_counts_and_fences(stage: Stage) -> None:
    job_id = stage.enqueue(task="send")
    (run,) = stage.claim("w")
    assert (run.id, run.attempt, run.fence) == (job_id, 1, str(stage.now_ms * 1000 + 1))
    assert dict(zip(run.flat[::2], run.flat[1::2], strict=True))[b"task"] == b"send"
    assert stage.raw.get(stage.place.lock(job_id)) == f"w#{run.fence}".encode()
    assert stage.job(job_id)["started_at"] == stage.now
    assert stage.claim("other") == []


def test_priority_0_is_first_and_the_limit_holds(stage: Stage) -> None:
    low, high, middle = stage.enqueue(priority=9), stage.enqueue(priority=0), stage.enqueue()
    assert ids(stage.claim("w", 2)) == [high, middle]
    assert ids(stage.claim("w", 2)) == [low]


def test_a_turn_serves_a_low_priority_first_once(stage: Stage) -> None:
    low, high, higher = stage.enqueue(priority=9), stage.enqueue(priority=1), stage.enqueue(priority=0)
    assert ids(stage.claim("w", 2, turn="9")) == [low, higher]
    assert ids(stage.claim("w", 2, turn="9")) == [high]


def test_a_turn_goes_on_to_the_next_priority_that_has_jobs(stage: Stage) -> None:
    zero, four = stage.enqueue(priority=0), stage.enqueue(priority=4)
    assert ids(stage.claim("w", 1, turn="2")) == [four]
    assert ids(stage.claim("w", 1, turn="2")) == [zero]


def test_a_group_that_is_missing_is_made(stage: Stage) -> None:
    job_id = stage.enqueue()
    stage.run(calls.join(stage.place, 15, []))
    stage.raw.xgroup_destroy(stage.place.ready[5], "workers")
    assert ids(stage.claim("w")) == [job_id]


def test_a_group_made_anew_delivers_a_running_job_to_nobody(stage: Stage) -> None:
    job_id = running(stage)
    stage.raw.xgroup_destroy(stage.place.ready[5], "workers")
    assert stage.claim("other") == []
    stage.lose_lease(job_id)
    assert stage.recover() == [(job_id, "RETRY", "other")]
    assert [run.attempt for run in stage.claim("w")] == [2]


def test_many_runs_fit_into_one_answer(stage: Stage) -> None:
    for _ in range(3):
        stage.enqueue_many([{}] * 3000)
    assert len(stage.claim("w", 9000)) == 9000


def test_delivered_entries_are_claimed_first(stage: Stage) -> None:
    first, second = stage.enqueue(), stage.enqueue(priority=0)
    entries = stage.deliver("w")
    third = stage.enqueue(priority=0)
    assert ids(stage.claim("w", 3, delivered=entries)) == [second, first, third]


def test_delivered_entries_over_the_limit_go_to_others(stage: Stage) -> None:
    jobs = stage.enqueue_many([{}] * 3).ids
    entries = stage.deliver("w")
    assert ids(stage.claim("w", 1, delivered=entries)) == jobs[:1]
    assert ids(stage.claim("other")) == jobs[1:]


def test_what_is_given_back_is_first_looked_at(stage: Stage) -> None:
    stage.raw.xadd(stage.place.ready[5], {b"\xff\x00": b"x"})
    due_ms = stage.now_ms + 1000
    promoted = stage.enqueue(delay=1)
    stage.now_ms = due_ms
    stage.promote()
    stage.raw.xadd(stage.place.ready[5], {"id": promoted})
    entries = stage.deliver("w")
    stage.now_ms += 5000
    assert stage.claim("w", 0, delivered=entries) == []
    assert stage.job(promoted)["due_at"] == str(due_ms)
    counts = stage.check().counts
    assert (counts.ready, counts.foreign) == (1, 1)


def test_a_delivered_entry_of_a_running_job_is_left_alone(stage: Stage) -> None:
    run = start(stage, "w")
    assert stage.claim("w", 0, delivered=[run.entry]) == []
    assert stage.claim("w", 5, delivered=[run.entry]) == []
    stage.lose_lease(run.id)
    assert stage.claim("w", 5, delivered=[run.entry]) == []
    assert stage.job(run.id)["attempts"] == "1"


def test_a_run_to_be_cancelled_is_not_ended_under_its_worker(stage: Stage) -> None:
    run = start(stage, "w")
    stage.cancel(run.id)
    stage.raw.xgroup_destroy(stage.place.ready[5], "workers")
    assert stage.claim("other") == []
    assert stage.claim("other", 0, delivered=[run.entry]) == []
    assert stage.state(run.id) == "RUNNING"
    assert stage.finish("w", outcome("SUCCEEDED", run)).notes == {}


def test_delivered_entries_that_were_recovered_or_cancelled_meanwhile_are_nobodys(stage: Stage) -> None:
    taken, ended = stage.enqueue(), stage.enqueue()
    entries = stage.deliver("w")
    stage.cancel(ended)
    assert stage.recover(worker="w") == [(taken, "RETURNED", "w")]
    assert stage.claim("w", 0, delivered=entries) == []
    assert stage.claim("w", 5, delivered=[*entries, "5/1-1"])[0].id == taken


def test_an_entry_delivered_to_somebody_else_is_not_claimed(stage: Stage) -> None:
    stage.enqueue()
    entries = stage.deliver("other")
    assert stage.claim("w", delivered=entries) == []


def test_a_job_not_started_in_time_expires(stage: Stage) -> None:
    late, kept = stage.enqueue(expires=5, idempotency_key="k"), stage.enqueue(expires=500)
    stage.now_ms += 60_000
    assert ids(stage.claim("w")) == [kept]
    assert stage.job(late)["last_error"] == "expired"
    assert stage.state(late) == "CANCELLED"
    assert stage.enqueue(idempotency_key="k") != late


def test_a_scheduled_job_expires_counted_from_its_due_time(stage: Stage) -> None:
    job_id = stage.enqueue(delay=3600, expires=30)
    stage.now_ms += 3_620_000
    stage.promote()
    assert ids(stage.claim("w")) == [job_id]


def test_an_executed_key_ends_a_second_job_unrun_and_lets_the_key_go_in_time(stage: Stage) -> None:
    first = start(stage, "w", idempotency_key="k")
    stage.finish("w", outcome("DEAD", first, c="k"))
    second = stage.enqueue(idempotency_key="k")
    assert stage.finish("w", outcome("SUCCEEDED", first, c="k")).notes == {first.id: "LATE"}
    assert stage.claim("w2") == []
    assert stage.state(second) == "SUCCEEDED"
    assert "executed before" in stage.job(second)["last_error"]
    assert 0 < stage.raw.pttl("rz:{q.0}:idem:k") <= 86_400_000


def test_a_job_asked_to_cancel_does_not_run_again(stage: Stage) -> None:
    run = start(stage, "w", idempotency_key="k")
    assert stage.cancel(run.id) == ("REQUESTED", "w")
    stage.release("w")
    assert stage.claim("w") == []
    assert stage.state(run.id) == "CANCELLED"
    assert not stage.raw.exists("rz:{q.0}:idem:k")


def test_a_retention_of_0_leaves_no_record(stage: Stage) -> None:
    job_id = stage.enqueue(expires=1, retention=0)
    stage.now_ms += 60_000
    assert stage.claim("w") == []
    assert stage.state(job_id) == "gone"


@pytest.mark.parametrize(
    "fields",
    [{b"\xff\x00": b"\x00\xff"}, {b"id": b"\xff\x00"}, {"id": "q.0.gone"}, {"id": ""}, {"job": "q.0.x", "id2": "y"}],
)
def test_a_foreign_entry_is_kept_in_the_dead_stream_as_it_came(stage: Stage, fields: dict[bytes, bytes]) -> None:
    stage.raw.xadd(stage.place.ready[0], fields)
    good = stage.enqueue()
    assert ids(stage.claim("w")) == [good]
    (grave,) = stage.run_raw("XRANGE", stage.place.dead, "-", "+")
    expected = [part if isinstance(part, bytes) else part.encode() for pair in fields.items() for part in pair]
    assert grave[1] == [
        b"id", b"", b"task", b"", b"error", b"entry without a job record", b"attempts", b"0", *expected,
    ]  # fmt: skip
    assert stage.check().counts.foreign == 1


def test_a_foreign_entry_of_any_length_stops_nobody(stage: Stage) -> None:
    stage.raw.xadd(stage.place.ready[0], {f"field {number}": "x" for number in range(9000)})
    stage.raw.xadd(stage.place.ready[0], {f"field {number}": "x" for number in range(9000)})
    stage.deliver("dead worker", 1)
    good = stage.enqueue()
    assert ids(stage.claim("w")) == [good]
    stage.recover(worker="dead worker")
    assert stage.check().counts.foreign == 2


def test_a_second_entry_of_a_job_runs_nothing(stage: Stage) -> None:
    job_id, ended = stage.enqueue(), cancelled(stage)
    stage.raw.xadd(stage.place.ready[0], {"id": job_id})
    stage.raw.xadd(stage.place.ready[0], {"id": ended})
    assert ids(stage.claim("w")) == [job_id]
    stage.raw.xadd(stage.place.ready[5], {"id": job_id})
    assert stage.claim("w") == []


def test_a_record_that_lost_its_task_is_no_job(stage: Stage) -> None:
    job_id = stage.enqueue()
    stage.raw.hdel(stage.place.job(job_id), "task")
    assert stage.claim("w") == []
    assert not stage.raw.exists(stage.place.job(job_id))


def test_fences_grow_over_all_jobs_of_a_partition(stage: Stage) -> None:
    stage.enqueue_many([{}] * 5)
    first = [int(run.fence) for run in stage.claim("w", 3)]
    stage.release("w")
    second = [int(run.fence) for run in stage.claim("w", 5)]
    assert first == sorted(set(first))
    assert min(second) > max(first)


@pytest.mark.parametrize("lost", ["all of it", "the last claims"])
def test_fences_grow_though_the_counter_was_lost(stage: Stage, lost: str) -> None:
    """A replica that missed the last claims became the master, or the server came back with an empty memory."""
    counter = f"{stage.place.base}fence"
    stage.enqueue_many([{}] * 9)
    stage.claim("w", 3)
    before = stage.raw.get(counter)
    handed_out = [int(run.fence) for run in stage.claim("w", 3)]
    stage.raw.set(counter, before) if lost == "the last claims" else stage.raw.delete(counter)
    stage.now_ms += 1
    assert min(int(run.fence) for run in stage.claim("w", 3)) > max(handed_out)


@pytest.mark.parametrize("moved_ms", [0, -3_600_000])
def test_fences_grow_though_the_clock_stands_still_or_steps_back(stage: Stage, moved_ms: int) -> None:
    stage.enqueue_many([{}] * 4)
    first = [int(run.fence) for run in stage.claim("w", 2)]
    stage.now_ms += moved_ms
    second = [int(run.fence) for run in stage.claim("w", 2)]
    assert first + second == list(range(first[0], first[0] + 4))


def test_fences_have_no_gap_in_a_far_future(stage: Stage) -> None:
    """Lua's numbers count without a gap up to 2^53 only."""
    stage.enqueue_many([{}] * 3)
    stage.now_ms = 253_402_300_799_999
    fences = [int(run.fence) for run in stage.claim("w", 3)]
    assert fences == [2**52 + 1, 2**52 + 2, 2**52 + 3]
