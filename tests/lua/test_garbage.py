"""A field that a foreign hand has overwritten stops nothing: it counts as not said, or its job ends with a reason."""

from typing import Any

import pytest

from rzsched import State, calls, cron_calls
from rzsched.audit import audit
from rzsched.audit_rules import NUMBERS
from rzsched.listing import list_jobs
from rzsched.status import instant, whole
from tests.states import SEEDERS, Stage, outcome, start

GARBAGE = ["x", "", "-inf", "1e400", "9" * 40, "0x10", "1.5", b"\xff\x00"]
FIELDS = [*sorted(NUMBERS - {"scheduled_for"}), "state", "entry", "idempotency_key"]


def spoil(stage: Stage, job_id: str, field: str, value: Any) -> None:
    stage.raw.hset(stage.place.job(job_id), field, value)


def read_all(stage: Stage) -> None:
    """Every way to read jobs still works."""
    stage.client.queue_stats("q")
    stage.client.list_dead("q")
    for state in State:
        stage.client.run(list_jobs(stage.client.space, "q", state, 10))


@pytest.mark.parametrize("field", FIELDS)
def test_a_job_with_a_garbage_field_goes_through_its_life(bare_stage: Stage, field: str) -> None:
    stage = bare_stage
    for value in GARBAGE[::3]:
        good = stage.enqueue()
        runs = {what: start(stage, "w") for what in ("SUCCEEDED", "DEAD", "RETRY", "RELEASED", "UNKNOWN", "CANCELLED")}
        kept, waiting, lost = start(stage, "v"), stage.enqueue(delay=1), start(stage, "dies")
        ready, dead = stage.enqueue(), SEEDERS["dead"](stage)
        for job_id in [run.id for run in (*runs.values(), kept, lost)] + [waiting, ready, dead]:
            spoil(stage, job_id, field, value)
            assert stage.client.get_job_status(job_id).id == job_id
        read_all(stage)
        stage.finish("w", *(outcome(what, run, "boom", "1000" if what != "UNKNOWN" else "5", "1000"
                                    if what == "UNKNOWN" else "") for what, run in runs.items()))
        stage.release("v")
        stage.lose_lease(lost.id)
        stage.recover(default_max_retries=3)
        stage.now_ms += 2000
        stage.promote()
        stage.over_dead("replay", [dead])
        claimed = {run.id for run in stage.claim("u")}
        assert good in claimed, "the others go on"
        if field not in {"state", "entry"}:
            assert {waiting, kept.id, ready, runs["RETRY"].id, runs["RELEASED"].id} <= claimed
        for job_id in (waiting, ready, kept.id, lost.id):
            stage.cancel(job_id)
        stage.release("u")
        read_all(stage)
        stage.raw.flushall()
        stage.raw.hset("rz:queues", "q", 1)


@pytest.mark.parametrize("field", sorted(NUMBERS))
def test_the_audit_names_a_garbage_number_and_goes_on(bare_stage: Stage, field: str) -> None:
    for job_id in [seed(bare_stage) for seed in SEEDERS.values()]:
        spoil(bare_stage, job_id, field, "x")
    with pytest.raises(AssertionError) as caught:
        bare_stage.check()
    assert str(caught.value).count("'unreadable_field'") == 6, "all that is alive"
    assert f"{field} is 'x'" in str(caught.value)


def test_garbage_counters_begin_again_and_fences_still_grow(stage: Stage) -> None:
    before = int(start(stage, "w").fence)
    for counter in ("enqueued", "succeeded", "parked", "waits", "lease_ms"):
        stage.raw.hset(stage.place.fixed[3], counter, "x")
    stage.raw.set(stage.place.base + "fence", "x")
    stage.now_ms += 1  # the clock is ahead of all fences that were given
    run = start(stage, "w")
    assert int(run.fence) > before
    assert stage.finish("w", outcome("SUCCEEDED", run)).notes == {}
    assert stage.run(calls.measure(stage.place)).counters["succeeded"] == 1
    assert stage.client.queue_stats("q").succeeded == 1


def test_garbage_in_a_schedule_stops_neither_it_nor_the_others(stage: Stage) -> None:
    for schedule_id in ("bad", "good"):
        stage.client.schedule_cron("t", id=schedule_id, queue="q", every=3600)
    for name in ("fired", "missed", "skipped", "next"):
        stage.raw.hset(stage.place.cron("bad"), name, "x")
    stage.raw.zrem(stage.place.crons, "bad", "good")
    assert stage.client.get_cron("bad").fired == 0
    assert stage.run(cron_calls.rearm(stage.place)) == 2
    stage.client.trigger_cron("bad")
    stage.client.schedule_cron("t", id="bad", queue="q", every=3600)
    assert stage.client.get_cron("bad").fired == 1
    assert len(stage.client.list_crons()) == 2


@pytest.mark.parametrize("text", GARBAGE)
def test_what_is_no_number_is_read_as_not_said(text: str | bytes) -> None:
    assert whole(text, 7) == 7
    assert text == "1.5" or instant(text) is None or text == "9" * 40


def test_numbers_are_read() -> None:
    assert (whole("12", 0), whole(b"-3", 0), whole(None, 4), whole("²", 5)) == (12, -3, 4, 5)


@pytest.mark.parametrize("score", [12.5, "-inf", -3])
def test_a_due_time_that_is_no_whole_number_is_due_all_the_same(stage: Stage, score: float | str) -> None:
    job_id = stage.enqueue(delay=60)
    stage.raw.zadd(stage.place.scheduled, {job_id: score})
    stage.promote()
    stage.check()
    assert [run.id for run in stage.claim("w")] == [job_id]
    assert stage.release("w") == [job_id]


def test_a_garbage_count_of_partitions_is_one(stage: Stage) -> None:
    stage.client.schedule_cron("t", id="s", queue="q", every=3600)
    stage.raw.hset("rz:queues", "q", "x")
    assert [cron.id for cron in stage.client.list_crons()] == ["s"]
    assert stage.client.run(audit(stage.client.space)).partitions == ["q.0"]
    stage.raw.hset("rz:queues", "q", 1)
