"""Renew keeps leases and tells what is lost or to be cancelled."""

from rzsched import calls
from tests.states import LEASE_MS, Stage, outcome, start


def renew(stage: Stage, worker: str, *runs: calls.Claimed, progress: str = "") -> dict[str, str]:
    rows = [(run.id, run.fence, run.entry, progress) for run in runs]
    return stage.run(calls.renew(stage.place, worker, LEASE_MS, rows, stage.now))


def test_a_lease_and_the_entrys_idle_time_begin_anew(stage: Stage) -> None:
    run = start(stage, "w")
    stage.raw.pexpire(stage.place.lock(run.id), 50_000)
    stage.raw.xclaim(stage.place.ready[5], "workers", "w", 0, [run.entry[2:]], idle=90_000, justid=True)
    assert renew(stage, "w", run) == {}
    assert stage.raw.pttl(stage.place.lock(run.id)) > 500_000
    (pending,) = stage.raw.xpending_range(stage.place.ready[5], "workers", "-", "+", 10)
    assert pending["time_since_delivered"] < 60_000


def test_progress_is_stored_only_where_there_is_some(stage: Stage) -> None:
    run = start(stage, "w")
    renew(stage, "w", run, progress="0.5 halfway")
    renew(stage, "w", run)
    status = stage.status(run.id)
    assert status is not None
    assert status.progress == "0.5 halfway"


def test_a_run_whose_lock_is_gone_or_anothers_is_lost(stage: Stage) -> None:
    gone, taken, kept = start(stage, "w"), start(stage, "w"), start(stage, "w")
    stage.lose_lease(gone.id)
    stage.lose_lease(taken.id)
    stage.cancel(gone.id)
    stage.recover()
    new = [run for run in stage.claim("w") if run.id == taken.id]
    assert renew(stage, "w", gone, taken, kept, progress="1") == {gone.fence: "LOST", taken.fence: "LOST"}
    assert "progress" not in stage.job(taken.id)
    assert renew(stage, "other", kept) == {kept.fence: "LOST"}
    assert renew(stage, "w", *new, kept) == {}
    assert renew(stage, "w", *new, taken) == {taken.fence: "LOST"}, "the newer run of the same job goes on"


def test_a_run_to_be_cancelled_is_told_and_keeps_its_lease(stage: Stage) -> None:
    run = start(stage, "w")
    stage.cancel(run.id)
    stage.raw.pexpire(stage.place.lock(run.id), 50_000)
    assert renew(stage, "w", run) == {run.fence: "CANCELLED"}
    assert stage.raw.pttl(stage.place.lock(run.id)) > 500_000


def test_many_runs_are_renewed_in_one_call(stage: Stage) -> None:
    stage.enqueue_many([{}] * 1100)
    runs = stage.claim("w", 1100)
    assert renew(stage, "w", *runs) == {}


def test_a_stream_that_somebody_deleted_costs_no_other_run_its_lease(bare_stage: Stage) -> None:
    lost, kept = start(bare_stage, "w", priority=0), start(bare_stage, "w")
    bare_stage.raw.delete(bare_stage.place.ready[0])
    assert renew(bare_stage, "w", lost, kept) == {}
    assert bare_stage.finish("w", outcome("SUCCEEDED", lost), outcome("SUCCEEDED", kept)).notes == {}
    bare_stage.check()


def test_nothing_to_renew_is_no_error(stage: Stage) -> None:
    assert renew(stage, "w") == {}
