"""Promote moves what is due, under the partition's lease."""

import pytest

from rzsched import calls
from rzsched.growth import configure
from tests.states import Stage, outcome, retry_waiting, running, scheduled, start, succeeded


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
    assert stage.promote() == calls.Promotion(1, None, stage.now_ms * 1000)
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


def test_what_is_due_is_claimed_for_an_idle_worker_in_the_same_step(stage: Stage) -> None:
    ids = [stage.enqueue(delay=1 + number, max_retries=0) for number in range(3)]
    stage.now_ms += 3000
    promotion, runs = stage.promote_claim("w", 2)
    assert (promotion.count, promotion.unread) == (3, 0)
    assert ([run.id for run in runs], runs.gate) == (ids[:2], "")
    assert [stage.state(each) for each in ids] == ["RUNNING", "RUNNING", "PENDING"]
    assert stage.finish("w", *(outcome("SUCCEEDED", run) for run in runs)).notes == {}
    assert [run.id for run in stage.claim("w")] == ids[2:]


def test_no_more_is_claimed_than_was_moved(stage: Stage) -> None:
    waiting = stage.enqueue(priority=0)
    promotion, runs = stage.promote_claim("w", 8)
    assert (promotion.count, list(runs)) == (0, [])
    due = stage.enqueue(delay=1)
    stage.now_ms += 1000
    promotion, runs = stage.promote_claim("w", 8)
    assert (promotion.count, [run.id for run in runs]) == (1, [waiting])
    assert stage.state(due) == "PENDING"


def test_an_idle_worker_gets_nothing_through_a_scheduler_without_the_lease(stage: Stage) -> None:
    job_id = stage.enqueue(delay=1)
    stage.now_ms += 1000
    stage.promote(0, owner="first")
    promotion, runs = stage.promote_claim("w", 8, owner="second")
    assert (promotion.held_by, list(runs)) == ("first", [])
    assert stage.raw.zscore(stage.place.scheduled, job_id) is not None


@pytest.mark.parametrize(("limits", "gate"), [({"paused": "1"}, "PAUSED"), ({"concurrency": "1"}, "FULL"),
                                              ({"rate": "1", "rate_ms": "60000"}, "RATED")])  # fmt: skip
def test_the_limits_of_the_queue_hold_for_an_idle_worker(stage: Stage, limits: dict[str, str], gate: str) -> None:
    stage.run(configure(stage.place, limits, stage.now))
    stage.enqueue_many([{"delay": 1}] * 3)
    stage.now_ms += 1000
    promotion, runs = stage.promote_claim("w", 8)
    assert (promotion.count, len(runs), runs.gate) == (3, 0 if gate == "PAUSED" else 1, gate)
    assert runs.look_s > 0


def test_what_has_expired_is_not_given_to_an_idle_worker(stage: Stage) -> None:
    expired, due = stage.enqueue(delay=1, expires=5), stage.enqueue(delay=20)
    stage.now_ms += 20_000
    assert [run.id for run in stage.promote_claim("w", 8)[1]] == [due]
    assert stage.state(expired) == "CANCELLED"


def test_a_herd_is_told_of_where_the_limit_was_reached(stage: Stage) -> None:
    stage.enqueue_many([{"delay": 1}] * 12)
    stage.now_ms += 1000
    told = stage.promote(5)
    assert (told.unread, told.left) == (5, 7)
    assert len(stage.claim("w", 2)) == 2
    told = stage.promote(5)
    assert (told.unread, told.left) == (8, 2), "two of the ten were delivered"
    told = stage.promote(5)
    assert (told.count, told.unread, told.left) == (2, 0, 0)


def test_where_jobs_have_differed_in_priority_none_are_told_as_left(stage: Stage) -> None:
    start(stage, "w", priority=0)
    stage.enqueue_many([{"delay": 1}] * 12)
    stage.now_ms += 1000
    assert stage.promote(5).left is None
