"""Recover takes back what dead workers hold."""

import pytest

from rzsched import calls
from tests.states import Stage, delivered, outcome, start


def counter(stage: Stage, name: str) -> int:
    return int(stage.raw.hget(stage.place.fixed[3], name) or 0)


def test_a_lost_run_is_ready_again_and_its_attempt_counts(stage: Stage) -> None:
    run = start(stage, "w", priority=3)
    stage.lose_lease(run.id)
    assert stage.recover() == [(run.id, "RETRY", "w")]
    job = stage.job(run.id)
    assert (job["state"], job["last_error"], job["due_at"]) == ("PENDING", "worker lost", stage.now)
    (again,) = stage.claim("w2")
    assert (again.attempt, again.entry[0]) == (2, "3")
    assert counter(stage, "recovered") == 1


def test_a_job_that_kills_its_workers_ends_dead(stage: Stage) -> None:
    run = start(stage, "w", max_retries=2, idempotency_key="k")
    for _ in range(2):
        stage.lose_lease(run.id)
        assert stage.recover() == [(run.id, "RETRY", "w")]
        (run,) = stage.claim("w")
    stage.lose_lease(run.id)
    assert stage.recover() == [(run.id, "DEAD", "w")]
    assert stage.job(run.id)["last_error"] == "worker lost"
    assert stage.enqueue(idempotency_key="k") != run.id
    assert (counter(stage, "recovered"), counter(stage, "dead")) == (3, 1)


@pytest.mark.parametrize(
    ("known", "default", "what"), [(0, 9, "DEAD"), (1, 0, "RETRY"), (None, 0, "DEAD"), (None, 1, "RETRY")]
)
def test_the_task_says_how_often_where_the_job_does_not(
    stage: Stage, known: int | None, default: int, what: str
) -> None:
    stage.run(calls.join(stage.place, 15, [] if known is None else [("task", known)]))
    run = start(stage, "w")
    stage.lose_lease(run.id)
    assert stage.recover(default_max_retries=default) == [(run.id, what, "w")]


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled(stage: Stage) -> None:
    run = start(stage, "w", idempotency_key="k", retention=5)
    assert stage.cancel(run.id) == ("REQUESTED", "w")
    stage.lose_lease(run.id)
    assert stage.recover() == [(run.id, "CANCELLED", "w")]
    assert stage.state(run.id) == "CANCELLED"
    assert 0 < stage.raw.pttl(stage.place.job(run.id)) <= 5000
    assert not stage.raw.exists("rz:{q.0}:idem:k")
    assert counter(stage, "cancelled") == 1


def test_a_run_under_its_lease_is_left_alone(stage: Stage) -> None:
    run = start(stage, "w")
    assert stage.recover() == []
    assert stage.state(run.id) == "RUNNING"


def test_entries_that_nobody_started_go_back_unharmed(stage: Stage) -> None:
    due_ms = stage.now_ms + 1000
    job_id = stage.enqueue(delay=1)
    stage.now_ms = due_ms
    stage.promote()
    stage.deliver("w")
    stage.now_ms += 9000
    assert stage.recover() == [(job_id, "RETURNED", "w")]
    job = stage.job(job_id)
    assert job["due_at"] == str(due_ms)
    assert "last_error" not in job
    assert counter(stage, "returned") == 1
    assert [run.attempt for run in stage.claim("w")] == [1]


def test_only_entries_idle_for_long_enough_are_looked_at(stage: Stage) -> None:
    fresh, old = start(stage, "w"), start(stage, "w")
    for run in (fresh, old):
        stage.lose_lease(run.id)
    stage.raw.xclaim(stage.place.ready[5], "workers", "w", 0, [old.entry[2:]], idle=60_000, justid=True)
    assert stage.recover(idle_s=30) == [(old.id, "RETRY", "w")]


def test_a_worker_that_was_seen_to_die_is_recovered_at_once_by_name(stage: Stage) -> None:
    own, other, similar = start(stage, "w"), start(stage, "v"), start(stage, "w2")
    assert stage.recover(worker="w") == [(own.id, "RETRY", "w")]
    assert [stage.state(each.id) for each in (other, similar)] == ["RUNNING", "RUNNING"]
    assert stage.recover(worker="w") == []


def test_by_name_what_another_worker_runs_meanwhile_is_left(stage: Stage) -> None:
    run = start(stage, "w")
    stage.raw.xclaim(stage.place.ready[5], "workers", "v", 0, [run.entry[2:]], justid=True)
    assert stage.recover(worker="v") == []
    stage.raw.xclaim(stage.place.ready[5], "workers", "w", 0, [run.entry[2:]], justid=True)


def test_a_limit_bounds_a_call(stage: Stage) -> None:
    stage.enqueue_many([{}] * 7)
    stage.deliver("w")
    assert [len(stage.recover(worker="w", limit=3)) for _ in range(4)] == [3, 3, 1, 0]


def test_foreign_remains_among_the_pending_are_settled(stage: Stage) -> None:
    job_id = delivered(stage)
    stage.raw.xadd(stage.place.ready[5], {b"\xff\x00": b"x"})
    stage.raw.xadd(stage.place.ready[5], {"id": job_id})
    gone = stage.raw.xadd(stage.place.ready[5], {"id": "q.0.gone"})
    stage.deliver("w")
    stage.raw.xdel(stage.place.ready[5], gone)
    assert [found[:2] for found in stage.recover()] == [(job_id, "RETURNED")]
    counts = stage.check().counts
    assert (counts.foreign, counts.ready, counts.delivered) == (1, 1, 0)


def test_a_partition_without_streams_holds_nothing_to_recover(stage: Stage) -> None:
    assert stage.recover() == []


def test_watchers_learn_of_an_end_by_recovery(stage: Stage) -> None:
    run = start(stage, "w", max_retries=0)
    stage.run(calls.watch(stage.place, run.id, 10))
    stage.lose_lease(run.id)
    listener = stage.raw.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(stage.place.ended_channel)
    listener.get_message(timeout=1)
    stage.recover()
    message = listener.get_message(timeout=1)
    assert message
    assert message["data"] == run.id.encode()
    listener.close()


def test_a_stale_finish_after_recovery_releases_nobodys_lock(stage: Stage) -> None:
    old = start(stage, "w")
    stage.lose_lease(old.id)
    stage.recover()
    (new,) = stage.claim("w")
    for what in ("SUCCEEDED", "RETRY", "DEAD"):
        assert stage.finish("w", outcome(what, old)).notes == {old.id: "STALE"}
    assert stage.raw.get(stage.place.lock(new.id)) == f"w#{new.fence}".encode()
