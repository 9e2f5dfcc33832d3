"""What only reads, and who says that it is there: inspect, watch, measure, attend, join."""

from datetime import UTC, datetime, timedelta

import pytest

from rzsched import calls, keys
from rzsched.errors import ServerUnsuitable
from tests.states import SEEDERS, Stage, delivered, outcome, ready, running, scheduled, start

STATES = {
    "scheduled": "PENDING", "ready": "PENDING", "delivered": "PENDING", "parked": "PENDING", "running": "RUNNING",
    "retry_waiting": "FAILED", "dead": "DEAD", "succeeded": "SUCCEEDED", "cancelled": "CANCELLED",
}  # fmt: skip


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize("name", SEEDERS)
def test_inspect_tells_every_state(stage: Stage, name: str) -> None:
    status = stage.status(SEEDERS[name](stage, idempotency_key="k"))
    assert status is not None
    assert (status.state, status.idempotency_key, status.task) == (STATES[name], "k", "task")
    assert (status.finished_at is not None) == (name in {"dead", "succeeded", "cancelled"})


def test_inspect_tells_when_a_job_is_due_who_runs_it_and_how_often(stage: Stage) -> None:
    later = stage.status(stage.enqueue(delay=60))
    run = start(stage, "w", max_retries=7)
    now = stage.status(run.id)
    assert later is not None
    assert now is not None
    assert later.next_run_at == at(stage.now_ms) + timedelta(seconds=60)
    assert (now.locked_by, now.attempts, now.max_retries, now.started_at) == ("w", 1, 7, at(stage.now_ms))
    assert now.lock_expiry is not None
    assert now.lock_expiry > at(stage.now_ms)


def test_inspect_knows_what_the_task_allows_once_a_worker_told(stage: Stage) -> None:
    job_id = ready(stage)
    before = stage.status(job_id)
    stage.run(calls.join(stage.place, 15, [("task", 11), ("other", 2)]))
    after = stage.status(job_id)
    assert before is not None
    assert after is not None
    assert (before.max_retries, after.max_retries) == (3, 11)


def test_inspect_finds_no_job_where_there_is_none(stage: Stage) -> None:
    assert stage.status("q.0.gone") is None


@pytest.mark.parametrize("name", SEEDERS)
def test_watch_says_whether_there_is_something_to_wait_for(stage: Stage, name: str) -> None:
    job_id = SEEDERS[name](stage)
    ended = name in {"dead", "succeeded", "cancelled"}
    assert stage.run(calls.watch(stage.place, job_id, 10)) == ("ENDED" if ended else "WATCHING")
    assert stage.raw.zcard("rz:{q.0}:waiting") == (not ended)


def test_watch_does_not_find_an_unknown_job(stage: Stage) -> None:
    assert stage.run(calls.watch(stage.place, "q.0.gone", 10)) == "NOT_FOUND"


def test_measure_counts_by_place(stage: Stage) -> None:
    for seed in SEEDERS.values():
        seed(stage)
        seed(stage, priority=0)
    measured = stage.run(calls.measure(stage.place, stage.now))
    assert (measured.scheduled, measured.ready, measured.running, measured.dead) == (4, 2, 6, 2)
    assert measured.counters["enqueued"] == 20
    assert measured.counters["parked"] == 2
    assert measured.counters["succeeded"] == measured.counters["cancelled"] == measured.counters["dead"] == 2


def test_measure_tells_the_age_of_the_oldest_ready_entry(stage: Stage) -> None:
    assert stage.run(calls.measure(stage.place, stage.now)).oldest_ready_age_ms == 0
    ready(stage)
    stage.now_ms += 500_000
    age_ms = stage.run(calls.measure(stage.place, stage.now)).oldest_ready_age_ms
    assert 490_000 < age_ms <= 500_000
    delivered(stage, priority=9)
    running(stage)
    assert stage.run(calls.measure(stage.place, stage.now)).ready == 1


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_due_job_that_nobody_has_moved_is_as_old_as_it_is_late(stage: Stage, is_ready: bool) -> None:
    stage.enqueue(delay=10)
    if is_ready:
        ready(stage)
    stage.now_ms += 9_000
    age_ms = stage.run(calls.measure(stage.place, stage.now)).oldest_ready_age_ms
    stage.now_ms += 100_000
    later_ms = stage.run(calls.measure(stage.place, stage.now)).oldest_ready_age_ms
    assert later_ms == (age_ms + 100_000 if is_ready else 99_000)


@pytest.mark.parametrize(("score", "due_in_ms"), [(5000, 4000), (1000, 0), ("-inf", -1000), ("0.5", -1000)])
def test_measure_tells_when_the_first_job_is_due(bare_stage: Stage, score: float | str, due_in_ms: int) -> None:
    bare_stage.now_ms = 1000
    bare_stage.raw.zadd(bare_stage.place.scheduled, {"q.0.later": "inf", "q.0.first": score})
    assert bare_stage.run(calls.measure(bare_stage.place, bare_stage.now)).due_in_ms == due_in_ms


def test_a_job_that_is_never_due_is_due_in_a_very_long_time(bare_stage: Stage) -> None:
    bare_stage.raw.zadd(bare_stage.place.scheduled, {"q.0.never": "inf"})
    assert (bare_stage.run(calls.measure(bare_stage.place, bare_stage.now)).due_in_ms or 0) > 10**12


def test_measure_of_an_empty_partition_is_nothing(stage: Stage) -> None:
    assert stage.run(calls.measure(stage.place)) == calls.PartitionCount(0, 0, 0, 0, 0, {})


def test_measure_counts_ready_jobs_before_any_worker_came(stage: Stage) -> None:
    stage.enqueue_many([{}] * 3)
    assert stage.run(calls.measure(stage.place, stage.now)).ready == 3


def attend(stage: Stage, who: str = "", ttl_s: float = 0) -> list[str]:
    return stage.run(calls.attend(keys.workers("rz"), who, ttl_s, stage.now)).ids


def test_who_attends_is_seen_until_the_time_runs_out_or_it_leaves(stage: Stage) -> None:
    assert attend(stage) == []
    assert attend(stage, "a", 10) == ["a"]
    assert attend(stage, "b", 30) == ["a", "b"]
    stage.now_ms += 10_000
    assert attend(stage) == ["a", "b"]
    stage.now_ms += 1
    assert attend(stage) == ["b"]
    assert attend(stage, "b") == []


def test_attend_answers_the_servers_time(stage: Stage) -> None:
    assert stage.run(calls.attend(keys.workers("rz"), "a", 5, stage.now)).now_ms == stage.now_ms
    assert abs(stage.run(calls.attend(keys.workers("rz"))).now_ms - stage.now_ms) < 60_000


def test_join_makes_every_stream_with_its_group_and_may_be_repeated(stage: Stage) -> None:
    for _ in range(2):
        assert stage.run(calls.join(stage.place, 15, [("a", 1)])) == "JOINED"
    assert all(stage.raw.xinfo_groups(stream)[0]["name"] == b"workers" for stream in stage.place.ready)


def test_join_finds_what_was_enqueued_before_it(stage: Stage) -> None:
    job_id = ready(stage)
    stage.run(calls.join(stage.place, 15, []))
    (run,) = stage.claim("w")
    assert run.id == job_id
    stage.run(calls.join(stage.place, 15, []))
    assert stage.finish("w", outcome("SUCCEEDED", run)).notes == {}


def test_the_shortest_lease_is_remembered(stage: Stage) -> None:
    for lease_s in (15, 5, 30, 0):
        stage.run(calls.join(stage.place, lease_s, []))
    assert stage.raw.hget(stage.place.fixed[3], "lease_ms") == b"5000"


def test_a_key_of_another_type_in_the_way_is_an_error(stage: Stage) -> None:
    stage.raw.set(stage.place.ready[3], "x")
    with pytest.raises(ServerUnsuitable, match="WRONGTYPE"):
        stage.run(calls.join(stage.place, 15, []))
    stage.raw.delete(stage.place.ready[3])
    scheduled(stage)
