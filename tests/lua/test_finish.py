"""Finish settles runs: only the owner ends one, and outcome and acknowledgement are one step."""

from collections.abc import Callable

import pytest

from rzsched import calls
from tests.states import LEASE_MS, Stage, outcome, ready, scheduled, start


def counter(stage: Stage, name: str) -> int:
    return int(stage.raw.hget(stage.place.fixed[3], name) or 0)


def settle(stage: Stage, what: str, a: str = "", b: str = "", c: str = "", **options: object) -> str:
    run = start(stage, "w", **options)
    assert stage.finish("w", outcome(what, run, a, b, c)).notes == {}
    assert not stage.raw.exists(stage.place.lock(run.id))
    return run.id


def test_success_keeps_a_result_for_its_retention(stage: Stage) -> None:
    job_id = settle(stage, "SUCCEEDED", "\x07", "5000")
    assert stage.state(job_id) == "SUCCEEDED"
    assert stage.job(job_id)["result"] == "\x07"
    assert 0 < stage.raw.pttl(stage.place.job(job_id)) <= 5000
    assert counter(stage, "succeeded") == 1


def test_success_with_no_retention_leaves_only_the_key(stage: Stage) -> None:
    job_id = settle(stage, "SUCCEEDED", b="0", c="k", idempotency_key="k", idempotency_ttl=50)
    assert stage.state(job_id) == "gone"
    for kind in ("idem", "done"):
        assert stage.raw.get(f"rz:{{q.0}}:{kind}:k") == job_id.encode()
        assert 0 < stage.raw.pttl(f"rz:{{q.0}}:{kind}:k") <= 50_000


def test_a_retry_waits_for_its_delay(stage: Stage) -> None:
    job_id = settle(stage, "RETRY", "no luck", "5000", priority=3)
    assert (stage.state(job_id), stage.job(job_id)["last_error"]) == ("FAILED", "no luck")
    assert stage.raw.zscore(stage.place.scheduled, job_id) == stage.now_ms + 5000
    stage.now_ms += 5000
    stage.promote()
    (run,) = stage.claim("w")
    assert (run.attempt, run.entry[0]) == (2, "3")
    assert counter(stage, "failed") == 1


def test_a_retry_without_delay_is_ready_at_once(stage: Stage) -> None:
    job_id = settle(stage, "RETRY", "no luck", "0")
    assert (stage.state(job_id), stage.job(job_id)["last_error"]) == ("PENDING", "no luck")
    assert [run.attempt for run in stage.claim("w")] == [2]


def test_death_keeps_the_record_and_frees_the_key(stage: Stage) -> None:
    job_id = settle(stage, "DEAD", "poison", c="k", idempotency_key="k")
    ((grave, values),) = stage.raw.xrange(stage.place.dead)
    assert values == {b"id": job_id.encode(), b"task": b"task", b"error": b"poison", b"attempts": b"1"}
    assert stage.job(job_id)["entry"] == f"dead/{grave.decode()}"
    assert not stage.raw.exists("rz:{q.0}:idem:k")
    assert counter(stage, "dead") == 1


def test_a_cancelled_run_frees_the_key(stage: Stage) -> None:
    job_id = settle(stage, "CANCELLED", "cancelled", c="k", idempotency_key="k")
    assert stage.state(job_id) == "CANCELLED"
    assert not stage.raw.exists("rz:{q.0}:idem:k")
    assert counter(stage, "cancelled") == 1


@pytest.mark.parametrize(("delay", "place"), [("0", "ready"), ("2000", "scheduled")])
def test_a_released_run_used_no_attempt(stage: Stage, delay: str, place: str) -> None:
    job_id = settle(stage, "RELEASED", "", delay)
    assert stage.state(job_id) == "PENDING"
    assert getattr(stage.check().counts, place) == 1
    stage.now_ms += 2000
    stage.promote()
    assert [run.attempt for run in stage.claim("w")] == [1]


def unknown(stage: Stage, run: calls.Claimed, grace: str = "30000") -> dict[str, str]:
    return stage.finish("w", outcome("UNKNOWN", run, "unknown task", "2000", grace)).notes


def claim_later(stage: Stage, ms: int) -> calls.Claimed:
    stage.now_ms += ms
    stage.promote()
    (run,) = stage.claim("w")
    return run


def test_an_unknown_task_is_handed_on_until_its_grace_has_passed(stage: Stage) -> None:
    run = start(stage, "w", idempotency_key="k")
    for _ in range(15):
        assert unknown(stage, run) == {}
        assert stage.state(run.id) == "PENDING"
        run = claim_later(stage, 2000)
        assert run.attempt == 1
    assert unknown(stage, run) == {run.id: "DEAD"}
    assert stage.state(run.id) == "DEAD"
    assert stage.job(run.id)["last_error"] == "unknown task"
    assert not stage.raw.exists("rz:{q.0}:idem:k")
    assert (counter(stage, "unknown"), counter(stage, "dead")) == (15, 1)


def test_a_grace_of_0_ends_an_unknown_task_at_once(stage: Stage) -> None:
    run = start(stage, "w")
    assert unknown(stage, run, "0") == {run.id: "DEAD"}


def test_a_task_that_ran_in_between_gets_a_new_grace(stage: Stage) -> None:
    run = start(stage, "w")
    unknown(stage, run)
    run = claim_later(stage, 2000)
    stage.finish("w", outcome("RETRY", run, "no", "3600000"))
    run = claim_later(stage, 3_600_000)
    assert unknown(stage, run) == {}


def test_another_workers_run_is_stale_and_stays_as_it_is(stage: Stage) -> None:
    run = start(stage, "w")
    for what in ("SUCCEEDED", "RETRY", "DEAD", "CANCELLED", "RELEASED", "UNKNOWN"):
        assert stage.finish("thief", outcome(what, run, "x", "0")).notes == {run.id: "STALE"}
    assert stage.state(run.id) == "RUNNING"
    assert stage.finish("w", outcome("SUCCEEDED", run)).notes == {}
    assert counter(stage, "stale") == 6


def test_a_run_that_was_taken_over_is_stale(stage: Stage) -> None:
    old = start(stage, "w")
    stage.lose_lease(old.id)
    stage.recover()
    (new,) = stage.claim("w")
    assert stage.finish("w", outcome("SUCCEEDED", old)).notes == {old.id: "STALE"}
    assert stage.finish("w", outcome("SUCCEEDED", new)).notes == {}
    assert stage.finish("w", outcome("SUCCEEDED", old)).notes == {old.id: "STALE"}


def test_a_job_nobody_knows_is_stale(stage: Stage) -> None:
    run = calls.Claimed("5/1-1", "q.0.gone", "7", 1, [])
    assert stage.finish("w", outcome("SUCCEEDED", run)).notes == {run.id: "STALE"}
    assert not stage.raw.exists(stage.place.job(run.id))


def _unrecovered(stage: Stage, run: calls.Claimed) -> None:
    stage.lose_lease(run.id)


def _recovered(stage: Stage, run: calls.Claimed) -> None:
    stage.lose_lease(run.id)
    assert stage.recover()[0][:2] == (run.id, "RETRY")


def _delivered(stage: Stage, run: calls.Claimed) -> None:
    _recovered(stage, run)
    assert stage.deliver("other")


def _scheduled(stage: Stage, run: calls.Claimed) -> None:
    stage.finish("w", outcome("RELEASED", run, "", "60000"))


def _dead(stage: Stage, run: calls.Claimed) -> None:
    stage.raw.hset(stage.place.job(run.id), "max_retries", 0)
    stage.lose_lease(run.id)
    assert stage.recover()[0][:2] == (run.id, "DEAD")


def _replayed(stage: Stage, run: calls.Claimed) -> None:
    _dead(stage, run)
    assert stage.over_dead("replay").results == [(run.id, "OK")]


@pytest.mark.parametrize("lose", [_unrecovered, _recovered, _delivered, _scheduled, _dead, _replayed])
def test_a_late_success_is_taken_wherever_its_job_waits(
    stage: Stage, lose: Callable[[Stage, calls.Claimed], None]
) -> None:
    run = start(stage, "w", idempotency_key="k")
    lose(stage, run)
    stage.check()
    late = outcome("SUCCEEDED", run, "\x01", c="k")
    assert stage.finish("w", late).notes == {run.id: "LATE"}
    assert stage.state(run.id) == "SUCCEEDED"
    counts = stage.check().counts
    assert (counts.ended, counts.dead, counts.ready, counts.scheduled) == (1, 0, 0, 0)
    assert stage.claim("other") == []
    assert stage.finish("w", late).notes == {run.id: "REPEATED"}
    assert stage.enqueue(idempotency_key="k") == run.id
    assert (counter(stage, "late"), counter(stage, "succeeded")) == (1, 1)


@pytest.mark.parametrize("lose", [_unrecovered, _recovered, _delivered])
@pytest.mark.parametrize("what", ["RETRY", "DEAD", "CANCELLED", "RELEASED", "UNKNOWN"])
def test_any_other_late_outcome_changes_nothing(
    stage: Stage, lose: Callable[[Stage, calls.Claimed], None], what: str
) -> None:
    run = start(stage, "w")
    lose(stage, run)
    before = stage.job(run.id)
    assert stage.finish("w", outcome(what, run, "x", "0")).notes == {run.id: "STALE"}
    assert stage.job(run.id) == before


def test_a_late_failure_of_a_dead_job_is_a_repetition(stage: Stage) -> None:
    run = start(stage, "w")
    _dead(stage, run)
    assert stage.finish("w", outcome("DEAD", run, "x")).notes == {run.id: "REPEATED"}


@pytest.mark.parametrize("what", ["SUCCEEDED", "RETRY", "DEAD", "CANCELLED"])
def test_the_same_finish_again_changes_nothing(stage: Stage, what: str) -> None:
    run = start(stage, "w")
    sent = outcome(what, run, "x", "60000")
    stage.finish("w", sent)
    before, counts = stage.job(run.id), stage.check().counts
    assert set(stage.finish("w", sent, sent).notes) == {run.id}
    assert stage.finish("w", sent).notes == {run.id: "REPEATED"}
    assert (stage.job(run.id), stage.check().counts) == (before, counts)


@pytest.mark.parametrize("what", ["SUCCEEDED", "RETRY", "DEAD", "CANCELLED", "RELEASED"])
@pytest.mark.parametrize("delay", ["0", "60000"])
def test_the_same_run_twice_in_one_batch_is_settled_once(stage: Stage, what: str, delay: str) -> None:
    run = start(stage, "w")
    sent = outcome(what, run, "x", delay)
    assert set(stage.finish("w", sent, sent).notes) == {run.id}
    assert len(stage.claim("w")) == (what in {"RETRY", "RELEASED"} and delay == "0")


def test_another_group_on_the_stream_costs_no_job(stage: Stage) -> None:
    jobs = stage.enqueue_many([{}] * 5).ids
    stage.run(calls.join(stage.place, 15, []))
    stage.raw.xgroup_create(stage.place.ready[5], "a-debugger", "$")
    runs = stage.claim("w", 3)
    assert stage.finish("w", *(outcome("SUCCEEDED", run) for run in runs)).notes == {}
    assert stage.run(calls.measure(stage.place, stage.now)).ready == 2
    assert [run.id for run in stage.claim("w")] == jobs[3:]


def test_a_batch_of_any_size_is_settled_in_one_call(stage: Stage) -> None:
    for _ in range(3):
        stage.enqueue_many([{}] * 3000)
    runs = stage.claim("w", 9000)
    assert stage.finish("w", *(outcome("SUCCEEDED", run) for run in runs)).notes == {}


def test_a_key_that_somebody_else_holds_by_now_stays_theirs(stage: Stage) -> None:
    run = start(stage, "w", idempotency_key="k")
    _dead(stage, run)
    holder = scheduled(stage, idempotency_key="k")
    assert stage.finish("w", outcome("SUCCEEDED", run, c="k")).notes == {run.id: "LATE"}
    assert stage.enqueue(idempotency_key="k") == holder


def test_a_batch_is_settled_and_the_next_claimed_in_one_call(stage: Stage) -> None:
    stage.enqueue_many([{"priority": 4}] * 600 + [{}] * 700)
    runs = stage.claim("w", 1300)
    next_ids = stage.enqueue_many([{"priority": 0}] * 3).ids
    sent = [outcome("SUCCEEDED" if number % 3 else "RETRY", run, "", "60000") for number, run in enumerate(runs)]
    finished = stage.finish("w", *sent, limit=2)
    assert finished.notes == {}
    assert [run.id for run in finished.claimed] == next_ids[:2]
    counts = stage.check().counts
    assert (counts.running, counts.ready, counts.ended, counts.scheduled) == (2, 1, 866, 434)


def test_notes_name_each_run_that_was_not_plainly_settled(stage: Stage) -> None:
    plain, late, stale = start(stage, "w"), start(stage, "w2"), start(stage, "w3")
    stage.lose_lease(late.id)
    notes = stage.finish("w", *(outcome("SUCCEEDED", run) for run in (plain, stale))).notes
    notes |= stage.finish("w2", outcome("SUCCEEDED", late)).notes
    assert notes == {stale.id: "STALE", late.id: "LATE"}


def test_a_record_deleted_under_a_run_stops_nobody_elses_finish(stage: Stage) -> None:
    for what in ("SUCCEEDED", "RETRY", "DEAD", "CANCELLED", "RELEASED", "UNKNOWN"):
        gone, good = start(stage, "w"), start(stage, "w")
        stage.raw.delete(stage.place.job(gone.id))
        grace_ms = "30000" if what == "UNKNOWN" else ""
        stage.finish("w", outcome(what, gone, "x", "0", grace_ms), outcome("SUCCEEDED", good))
        assert stage.state(good.id) == "SUCCEEDED"
    assert stage.claim("w") == []
    assert stage.check().counts.foreign == 4


def test_watchers_are_told_of_each_end_once(stage: Stage) -> None:
    run, other = start(stage, "w"), ready(stage)
    stage.run(calls.watch(stage.place, run.id, 10))
    listener = stage.raw.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(stage.place.ended_channel)
    listener.get_message(timeout=1)
    stage.finish("w", outcome("SUCCEEDED", run))
    stage.cancel(other)
    messages = [listener.get_message(timeout=0.5) for _ in range(2)]
    assert [message and message["data"] for message in messages] == [run.id.encode(), None]
    listener.close()


def test_a_full_server_still_lets_a_worker_finish(own_server: Callable[[], object]) -> None:
    stage = Stage(own_server().url)  # type: ignore[attr-defined]
    runs = [start(stage, f"w{number}", idempotency_key=str(number)) for number in range(5)]
    outcomes = ["SUCCEEDED", "RETRY", "DEAD", "CANCELLED", "RELEASED"]
    stage.raw.config_set("maxmemory", 1)
    for number, (run, what) in enumerate(zip(runs, outcomes, strict=True)):
        assert stage.finish(f"w{number}", outcome(what, run, "", "60000", str(number))).notes == {}
    stage.raw.config_set("maxmemory", 0)
    counts = stage.check().counts
    assert (counts.ended, counts.dead, counts.scheduled) == (2, 1, 2)
    stage.close()


def test_renewed_runs_and_their_locks_agree(stage: Stage) -> None:
    run = start(stage, "w")
    assert stage.run(calls.renew(stage.place, "w", LEASE_MS, [(run.id, run.fence, run.entry, "")], stage.now)) == {}
