"""Promote moves what is due, under the partition's lease."""

from rzsched import calls
from tests.states import Stage, retry_waiting, running, scheduled, succeeded


def test_only_what_is_due_is_promoted_and_the_next_instant_is_told(stage: Stage) -> None:
    first, second = stage.enqueue(delay=10, priority=2), stage.enqueue(delay=20)
    told = stage.promote()
    assert (told.count, told.next_run_at_ms) == (0, stage.now_ms + 10_000)
    stage.now_ms += 10_000
    told = stage.promote()
    assert (told.count, told.next_run_at_ms, told.now_us) == (1, stage.now_ms + 10_000, stage.now_ms * 1000)
    assert stage.job(first)["due_at"] == stage.now
    assert stage.job(first)["entry"].startswith("2/")
    stage.now_ms += 10_000
    assert stage.promote() == calls.Promotion(1, None, stage.now_ms * 1000, backlog=1)
    assert stage.job(second)["entry"].startswith("5/")


def test_a_promoted_job_keeps_its_due_time_not_the_time_of_its_promotion(stage: Stage) -> None:
    job_id, due_ms = stage.enqueue(delay=10), stage.now_ms + 10_000
    stage.now_ms += 60_000
    stage.promote()
    assert stage.job(job_id)["due_at"] == str(due_ms)


def test_a_limit_leaves_the_rest_for_the_next_call(stage: Stage) -> None:
    stage.enqueue_many([{"delay": 1}] * 12)
    due_ms, stage.now_ms = stage.now_ms + 1000, stage.now_ms + 5000
    counts = [(told.count, told.next_run_at_ms) for told in (stage.promote(5), stage.promote(5), stage.promote(5))]
    assert counts == [(5, due_ms), (5, due_ms), (2, None)]


def test_many_are_removed_in_bounded_steps(stage: Stage) -> None:
    stage.enqueue_many([{"delay": 1}] * 1700)
    stage.now_ms += 1000
    assert stage.promote(2000).count == 1700


def test_another_schedulers_lease_holds(stage: Stage) -> None:
    stage.enqueue(delay=1)
    stage.now_ms += 1000
    stage.promote(0, owner="first", lease_s=100)
    told = stage.promote(owner="second")
    assert told.held_by == "first"
    assert 0 < told.held_ms <= 100_000
    assert stage.promote(owner="first").count == 1


def test_the_owner_prolongs_its_lease_and_resigns_only_its_own(stage: Stage) -> None:
    stage.promote(owner="first", lease_s=5)
    stage.promote(owner="first", lease_s=500)
    assert stage.raw.pttl(stage.place.lease) > 400_000
    assert stage.run(calls.resign(stage.place, "second")) == "NOT_OWNER"
    assert stage.run(calls.resign(stage.place, "first")) == "RESIGNED"
    assert stage.run(calls.resign(stage.place, "first")) == "NOT_OWNER"
    assert stage.promote(owner="second").held_by == ""


def test_a_retry_becomes_pending_again(stage: Stage) -> None:
    job_id = retry_waiting(stage)
    assert stage.state(job_id) == "FAILED"
    stage.now_ms += 60_000
    assert stage.promote().count == 1
    assert stage.state(job_id) == "PENDING"
    assert stage.job(job_id)["last_error"] == "ValueError: no"


def test_an_id_without_a_record_is_buried_as_it_is(stage: Stage) -> None:
    stage.raw.zadd(stage.place.scheduled, {b"\xff\x00": 1, "q.0.gone": 2})
    good = stage.enqueue(delay=1)
    stage.now_ms += 1000
    assert stage.promote().count == 3
    graves = [list(values.items())[-1] for _, values in stage.raw.xrange(stage.place.dead)]
    assert graves == [(b"raw", b"\xff\x00"), (b"raw", b"q.0.gone")]
    assert stage.state(good) == "PENDING"
    assert stage.check().counts.foreign == 2


def test_a_job_that_is_elsewhere_is_not_promoted_a_second_time(stage: Stage) -> None:
    alive, ended, cancelled = running(stage), succeeded(stage), scheduled(stage)
    stage.cancel(cancelled)
    stage.raw.zadd(stage.place.scheduled, {alive: 1, ended: 1, cancelled: 1})
    stage.promote()
    assert stage.raw.zcard(stage.place.scheduled) == 0
    assert [stage.state(each) for each in (alive, ended, cancelled)] == ["RUNNING", "SUCCEEDED", "CANCELLED"]


def test_without_a_given_time_the_servers_own_holds(stage: Stage) -> None:
    stage.enqueue(delay=3600)
    told = stage.run(calls.promote(stage.place, "s", 10, 10))
    assert told.count == 0
    assert abs(told.now_us // 1000 - stage.now_ms) < 60_000
