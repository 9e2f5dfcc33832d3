"""Release hands back, unharmed, what a worker holds; cancel ends what waits."""

from collections.abc import Callable

import pytest

from rzsched import keys
from tests.states import SEEDERS, Stage, delivered, outcome, ready, retry_waiting, running, scheduled, start


def consumers(stage: Stage) -> set[str]:
    return {
        each["name"].decode() for stream in stage.place.ready if stage.raw.exists(stream)
        for each in stage.raw.xinfo_consumers(stream, keys.GROUP)
    }  # fmt: skip


def test_all_but_the_kept_go_back_and_no_attempt_is_used(stage: Stage) -> None:
    kept, started, waiting = start(stage, "w"), start(stage, "w", priority=2), stage.enqueue()
    stage.deliver("w")
    assert set(stage.release("w", [kept.fence])) == {started.id, waiting}
    assert stage.state(kept.id) == "RUNNING"
    assert {run.id: run.attempt for run in stage.claim("other")} == {started.id: 1, waiting: 1}


def test_a_job_claimed_again_by_the_worker_that_lost_it_is_not_kept_for_the_run_of_before(stage: Stage) -> None:
    """The answer to the second claim was lost, so that nobody runs it."""
    before = start(stage, "w")
    stage.recover("w")
    (unheard,) = stage.claim("w")
    assert stage.release("w", [before.fence]) == [before.id]
    (again,) = stage.claim("w")
    assert again.attempt == unheard.attempt == 2
    assert stage.release("w", [before.fence, again.fence]) == []


def test_a_job_handed_back_keeps_its_due_time(stage: Stage) -> None:
    due_ms = stage.now_ms + 1000
    job_id = stage.enqueue(delay=1)
    stage.now_ms = due_ms
    stage.promote()
    stage.claim("w")
    stage.now_ms += 5000
    assert stage.release("w") == [job_id]
    assert stage.job(job_id)["due_at"] == str(due_ms)


def test_a_run_whose_lease_ran_out_uncontested_goes_back_free_too(stage: Stage) -> None:
    run = start(stage, "w", max_retries=0)
    stage.lose_lease(run.id)
    assert stage.release("w") == [run.id]
    assert [again.attempt for again in stage.claim("w")] == [1]


def test_a_run_that_another_worker_holds_is_left_to_it(stage: Stage) -> None:
    run = start(stage, "w")
    stage.raw.xclaim(stage.place.ready[5], "workers", "v", 0, [run.entry[2:]], justid=True)
    assert stage.release("v") == []
    stage.raw.xclaim(stage.place.ready[5], "workers", "w", 0, [run.entry[2:]], justid=True)
    assert stage.state(run.id) == "RUNNING"


def test_another_workers_jobs_are_not_touched(stage: Stage) -> None:
    run = start(stage, "w")
    assert stage.release("w2") == []
    assert stage.state(run.id) == "RUNNING"


def test_who_leaves_is_removed_unless_something_is_kept(stage: Stage) -> None:
    kept = start(stage, "w")
    stage.release("w", [kept.fence], leave=True)
    assert consumers(stage) == {"w"}
    stage.finish("w", outcome("SUCCEEDED", kept))
    stage.release("w", leave=True)
    assert consumers(stage) == set()


def test_foreign_remains_are_settled_on_the_way(stage: Stage) -> None:
    stage.raw.xadd(stage.place.ready[5], {b"\xff\x00": b"x"})
    stage.deliver("w")
    assert stage.release("w") == []
    assert stage.check().counts.foreign == 1


@pytest.mark.parametrize("seed", [scheduled, ready, delivered, retry_waiting])
def test_a_waiting_job_is_cancelled_at_once(stage: Stage, seed: Callable[..., str]) -> None:
    job_id = seed(stage, idempotency_key="k", retention=5)
    assert stage.cancel(job_id) == ("CANCELLED", "")
    assert stage.state(job_id) == "CANCELLED"
    assert 0 < stage.raw.pttl(stage.place.job(job_id)) <= 5000
    assert not stage.raw.exists("rz:{q.0}:idem:k")
    stage.now_ms += 10_000_000
    assert stage.promote().count == 0
    assert stage.claim("w") == []


def test_a_retention_of_0_removes_a_cancelled_job(stage: Stage) -> None:
    job_id = scheduled(stage, retention=0)
    assert stage.cancel(job_id) == ("CANCELLED", "")
    assert stage.cancel(job_id) == ("NOT_FOUND", "")


def test_a_running_job_is_asked_and_its_worker_named(stage: Stage) -> None:
    run = start(stage, "a-worker")
    assert stage.cancel(run.id) == ("REQUESTED", "a-worker")
    assert stage.state(run.id) == "RUNNING"
    assert stage.finish("a-worker", outcome("CANCELLED", run, "cancelled")).notes == {}


def test_a_run_without_a_lease_is_cancelled_at_once(stage: Stage) -> None:
    job_id = running(stage)
    stage.lose_lease(job_id)
    assert stage.cancel(job_id) == ("CANCELLED", "")
    assert stage.recover() == []


@pytest.mark.parametrize(("name", "state"), [("dead", "DEAD"), ("succeeded", "SUCCEEDED"), ("cancelled", "CANCELLED")])
def test_a_job_that_has_ended_cannot_be_cancelled(stage: Stage, name: str, state: str) -> None:
    assert stage.cancel(SEEDERS[name](stage)) == ("FINISHED", state)


def test_an_unknown_job_is_not_found(stage: Stage) -> None:
    assert stage.cancel("q.0.gone") == ("NOT_FOUND", "")
    assert stage.raw.keys("rz:{q.0}:*") == []
