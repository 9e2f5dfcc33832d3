"""Whatever a foreign hand breaks is mended; what is sound, or in the hands of a live worker, is left as it is."""

from typing import Any

import pytest

from rzsched.audit import audit
from rzsched.repair import Mend, mend_cron, mend_job, mend_key, repair
from tests.lua.test_audit import DAMAGES, Damage
from tests.states import SEEDERS, Stage, assert_one_place, outcome, start

BY_HAND = {"wrong_partition", "wrong_occurrence", "occurrence_without_schedule"}
"""What no rule can decide."""
UNTIL_THE_LEASE_ENDS = {"wrong_place", "nowhere", "lock_without_run"}
"""What is left of a run whose worker is alive and will end it."""


def fix(stage: Stage) -> list[Mend]:
    report = stage.client.run(audit(stage.client.space))
    assert bool(report.suspects) == bool(report.findings)
    return stage.client.run(repair(stage.client.space, report.suspects))


def snapshot(stage: Stage) -> dict[bytes, Any]:
    return {key: stage.raw.dump(key) for key in stage.raw.keys("*")}


@pytest.mark.parametrize(
    ("kinds", "damage"), DAMAGES, ids=[f"{number}-{min(kinds)}" for number, (kinds, _) in enumerate(DAMAGES)]
)
def test_what_a_foreign_hand_breaks_is_mended(bare_stage: Stage, kinds: set[str], damage: Damage) -> None:
    stage = bare_stage
    damage(stage)
    mends = fix(stage)
    left = {finding.kind for finding in stage.client.run(audit(stage.client.space)).findings}
    if left & UNTIL_THE_LEASE_ENDS:
        assert left <= UNTIL_THE_LEASE_ENDS
        for key in stage.raw.keys("*:lock:*"):
            stage.raw.delete(key)
        mends = fix(stage)
        left = {finding.kind for finding in stage.client.run(audit(stage.client.space)).findings}
    assert left <= BY_HAND
    if not left:
        assert mends
        assert fix(stage) == []
        assert_one_place(stage.client)


def test_what_is_sound_is_left_as_it_is(stage: Stage) -> None:
    ids = [seed(stage, **options) for seed in SEEDERS.values()
           for options in ({}, {"idempotency_key": seed.__name__, "priority": 3})]
    stage.client.schedule_cron("t", id="s", queue="q", every=3600)
    before = snapshot(stage)
    for job_id in [*ids, "q.0.unknown", ""]:
        assert stage.run(mend_job(stage.place, job_id, ["5/1-1", "dead/1-1", "parked/x", "garbage"])) == []
    assert stage.run(mend_key(stage.place, "idem", "ready")) == stage.run(mend_key(stage.place, "done", "ready")) == []
    assert stage.run(mend_cron(stage.place, "s")) == stage.run(mend_cron(stage.place, "no")) == []
    assert snapshot(stage) == before


def test_a_run_whose_records_were_spoilt_ends_as_its_worker_says(stage: Stage) -> None:
    run = start(stage, "w", idempotency_key="k", concurrency_key="c")
    stage.raw.zadd(stage.place.scheduled, {run.id: 1})
    stage.raw.xadd(stage.place.ready[5], {"id": run.id})
    stage.raw.delete("rz:{q.0}:idem:k")
    stage.raw.hdel("rz:{q.0}:holding", run.id)
    stage.raw.expire(stage.place.job(run.id), 100)
    stage.raw.hset(stage.place.job(run.id), "max_retries", "x")
    assert len(fix(stage)) >= 5
    assert stage.check().counts.running == 1
    assert stage.finish("w", outcome("SUCCEEDED", run, c="k")).notes == {}


def test_a_job_that_lost_its_place_runs_again_at_its_time(stage: Stage) -> None:
    later, now = stage.enqueue(delay=10), stage.enqueue()
    stage.raw.zrem(stage.place.scheduled, later)
    stage.raw.hset(stage.place.job(later), "due_at", stage.now_ms + 10_000_000)
    stage.raw.delete(stage.place.ready[5])
    whats = {mend.key: mend.what for mend in fix(stage)}
    assert whats == {
        later: "put back into the scheduled set",
        now: "put back into its ready stream, as nothing says a later time",
    }
    assert [run.id for run in stage.claim("w")] == [now]
    assert stage.raw.zscore(stage.place.scheduled, later) == stage.now_ms + 10_000_000


def test_ten_of_each_kind_are_mended_at_once(bare_stage: Stage) -> None:
    stage = bare_stage
    good = [seed(stage) for seed in SEEDERS.values() for _ in range(10)]
    ready, later = [stage.enqueue() for _ in range(20)], [stage.enqueue(delay=60) for _ in range(20)]
    for number, job_id in enumerate(ready[:10]):
        stage.raw.delete(stage.place.job(job_id))
        stage.raw.set(stage.place.lock(ready[10 + number]), "nobody#1")
        stage.raw.zrem(stage.place.scheduled, later[number])
        stage.raw.delete(stage.place.job(later[10 + number]))
        stage.raw.set(stage.place.base + f"idem:{number}", "q.0.gone")
        parked = good[30 + number]
        stage.raw.delete("rz:{q.0}:parked:" + stage.job(parked)["concurrency_key"])
    before = {job_id: stage.state(job_id) for job_id in good}
    assert len(fix(stage)) == 60
    stage.check()
    assert {job_id: stage.state(job_id) for job_id in good} == before
