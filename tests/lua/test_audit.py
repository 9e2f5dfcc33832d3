"""The auditor sees each thing that can be wrong, and nothing where all is well."""

from collections.abc import Callable

import pytest

from tests.states import SEEDERS, Stage, assert_one_place, parked, ready, running, scheduled, start

Damage = Callable[[Stage], object]


def test_jobs_in_every_state_are_each_in_one_place(stage: Stage) -> None:
    for seed in SEEDERS.values():
        seed(stage)
        seed(stage, idempotency_key=f"key of {seed.__name__}", priority=3)
    counts = stage.check().counts
    assert (counts.scheduled, counts.ready, counts.delivered, counts.running) == (4, 2, 2, 4)
    assert counts.parked == 2
    assert (counts.dead, counts.ended, counts.foreign) == (2, 4, 0)


def test_more_jobs_than_a_page_are_all_counted(stage: Stage) -> None:
    stage.enqueue_many([{}] * 1201 + [{"delay": 60}] * 703)
    counts = stage.check().counts
    assert (counts.ready, counts.scheduled) == (1201, 703)


def test_it_takes_a_url_and_a_namespace(redis_url: str) -> None:
    other = Stage(redis_url, namespace="other")
    ready(other)
    other.close()
    assert assert_one_place(redis_url, "other").counts.ready == 1
    assert assert_one_place(redis_url).partitions == []


def _hash(stage: Stage, seed: Callable[..., str], field: str, value: str) -> None:
    stage.raw.hset(stage.place.job(seed(stage)), field, value)


def _expire(stage: Stage, seed: Callable[..., str]) -> None:
    stage.raw.expire(stage.place.job(seed(stage)), 100)


def _second_entry(stage: Stage, seed: Callable[..., str]) -> None:
    stage.raw.xadd(stage.place.ready[5], {"id": seed(stage)})


def _drop_stream_entry(stage: Stage, seed: Callable[..., str]) -> None:
    seed(stage)
    ((entry, _),) = stage.raw.xrange(stage.place.ready[5])
    stage.raw.xdel(stage.place.ready[5], entry)


def _acknowledge_only(stage: Stage) -> None:
    run = start(stage, "w")
    stage.lose_lease(run.id)
    stage.raw.xack(stage.place.ready[5], "workers", run.entry[2:])


def _no_group(stage: Stage) -> None:
    stage.raw.xgroup_destroy(running(stage) and stage.place.ready[5], "workers")


def _drop_record(stage: Stage, seed: Callable[..., str]) -> None:
    stage.raw.delete(stage.place.job(seed(stage)))


def _unpark(stage: Stage) -> None:
    job_id = parked(stage)
    stage.raw.delete("rz:{q.0}:parked:" + stage.job(job_id)["concurrency_key"])


def _misplace(stage: Stage) -> None:
    stage.raw.hset(stage.place.job("other.0.x"), mapping={"task": "t"})
    stage.raw.zadd(stage.place.scheduled, {"other.0.x": 1})


def _set(stage: Stage, key: str, value: str) -> None:
    stage.raw.set(stage.place.base + key, value)


def _steal_key(stage: Stage, value: str) -> None:
    ready(stage, idempotency_key="k")
    _set(stage, "idem:k", value)


def _schedule(stage: Stage) -> str:
    return stage.client.schedule_cron("task", id="s", queue="q", every=3600)


def _occurrence(stage: Stage) -> str:
    return stage.client.trigger_cron(_schedule(stage))


DAMAGES: list[tuple[set[str], Damage]] = [
    ({"nowhere"}, lambda stage: stage.raw.zrem(stage.place.scheduled, scheduled(stage))),
    ({"nowhere"}, lambda stage: _drop_stream_entry(stage, ready)),
    ({"pending_without_entry", "wrong_place", "lock_without_run"}, lambda stage: _drop_stream_entry(stage, running)),
    ({"nowhere"}, lambda stage: stage.raw.delete(SEEDERS["dead"](stage) and stage.place.dead)),
    ({"two_places"}, lambda stage: stage.raw.zadd(stage.place.scheduled, {ready(stage): 1})),
    ({"two_places"}, lambda stage: _second_entry(stage, running)),
    ({"two_places"}, lambda stage: stage.raw.xadd(stage.place.dead, {"id": SEEDERS["dead"](stage)})),
    ({"wrong_entry"}, lambda stage: _hash(stage, ready, "entry", "5/1-1")),
    ({"wrong_entry"}, lambda stage: _hash(stage, ready, "entry", "")),
    ({"wrong_place"}, lambda stage: _hash(stage, ready, "state", "FAILED")),
    ({"wrong_place"}, lambda stage: _hash(stage, SEEDERS["dead"], "state", "PENDING")),
    ({"wrong_place"}, _acknowledge_only),
    ({"wrong_place", "lock_without_run"}, _no_group),
    ({"unknown_state"}, lambda stage: _hash(stage, ready, "state", "ASLEEP")),
    ({"ended_in_place"}, lambda stage: stage.raw.zadd(stage.place.scheduled, {SEEDERS["succeeded"](stage): 1})),
    ({"ended_in_place"}, lambda stage: _second_entry(stage, SEEDERS["cancelled"])),
    ({"never_expires"}, lambda stage: stage.raw.persist(stage.place.job(SEEDERS["succeeded"](stage)))),
    ({"expires_alive"}, lambda stage: _expire(stage, running)),
    ({"expires_alive"}, lambda stage: _expire(stage, SEEDERS["dead"])),
    ({"wrong_lock"}, lambda stage: stage.raw.set(stage.place.lock(running(stage)), "other#1")),
    ({"lock_without_run"}, lambda stage: stage.raw.set(stage.place.lock(ready(stage)), "other#1")),
    ({"lock_without_run"}, lambda stage: stage.raw.set(stage.place.lock(SEEDERS["succeeded"](stage)), "w#1")),
    ({"lock_without_job"}, lambda stage: _set(stage, "lock:q.0.gone", "w#1")),
    ({"scheduled_without_job"}, lambda stage: _drop_record(stage, scheduled)),
    ({"entry_without_job"}, lambda stage: _drop_record(stage, ready)),
    ({"entry_without_job"}, lambda stage: _drop_record(stage, SEEDERS["dead"])),
    ({"entry_without_job", "lock_without_job"}, lambda stage: _drop_record(stage, running)),
    ({"entry_without_job"}, lambda stage: stage.raw.xadd(stage.place.ready[0], {b"\xff\x00": b"\xff\x00"})),
    ({"entry_without_job"}, lambda stage: stage.raw.xadd(stage.place.ready[0], {b"id": b"\xff\x00"})),
    ({"record_without_task"}, lambda stage: stage.raw.hset(stage.place.job("q.0.x"), "state", "FAILED")),
    ({"key_not_held"}, lambda stage: stage.raw.delete(ready(stage, idempotency_key="k") and "rz:{q.0}:idem:k")),
    ({"key_not_held", "key_without_job"}, lambda stage: _steal_key(stage, "q.0.gone")),
    ({"key_not_held", "key_of_ended_job"}, lambda stage: _steal_key(stage, SEEDERS["succeeded"](stage))),
    ({"key_not_held", "key_of_other_job"}, lambda stage: _steal_key(stage, scheduled(stage, idempotency_key="j"))),
    ({"mark_never_expires"}, lambda stage: _set(stage, "done:k", "q.0.x")),
    ({"wrong_attempts"}, lambda stage: _hash(stage, ready, "attempts", "-1")),
    ({"wrong_attempts"}, lambda stage: _hash(stage, running, "attempts", "0")),
    ({"wrong_partition"}, _misplace),
    ({"two_places"}, lambda stage: stage.raw.zadd(stage.place.scheduled, {parked(stage): 1})),
    ({"two_places"}, lambda stage: stage.raw.zadd("rz:{q.0}:parked:other", {parked(stage): 1})),
    ({"two_places"}, lambda stage: stage.raw.zadd("rz:{q.0}:parked:k", {ready(stage): 1})),
    ({"nowhere"}, _unpark),
    ({"wrong_entry"}, lambda stage: _hash(stage, parked, "entry", "parked/other")),
    ({"wrong_place"}, lambda stage: _hash(stage, parked, "state", "FAILED")),
    ({"ended_in_place"}, lambda stage: stage.raw.zadd("rz:{q.0}:parked:k", {SEEDERS["succeeded"](stage): 1})),
    ({"entry_without_job"}, lambda stage: _drop_record(stage, parked)),
    ({"slot_not_held"}, lambda stage: stage.raw.hdel("rz:{q.0}:holding", running(stage, concurrency_key="k"))),
    ({"slot_not_needed"}, lambda stage: stage.raw.hset("rz:{q.0}:holding", scheduled(stage, concurrency_key="k"), "k")),
    ({"slot_not_needed"}, lambda stage: stage.raw.hset("rz:{q.0}:holding", SEEDERS["succeeded"](stage), "k")),
    ({"slot_of_other_key"}, lambda stage: stage.raw.hset("rz:{q.0}:holding", ready(stage), "k")),
    ({"schedule_not_armed"}, lambda stage: stage.raw.zrem(stage.place.crons, _schedule(stage))),
    ({"schedule_unlisted"}, lambda stage: stage.raw.srem(stage.place.schedules, _schedule(stage))),
    ({"schedule_wrong_instant"}, lambda stage: stage.raw.zadd(stage.place.crons, {_schedule(stage): 1})),
    ({"schedule_wrong_instant"}, lambda stage: stage.raw.hset(stage.place.cron(_schedule(stage)), "paused", "1")),
    ({"schedule_without_definition"}, lambda stage: stage.raw.delete(stage.place.cron(_schedule(stage)))),
    ({"wrong_occurrence"}, lambda stage: _hash(stage, _occurrence, "scheduled_for", "1")),
    ({"occurrence_without_schedule"}, lambda stage: stage.raw.hdel(stage.place.job(_occurrence(stage)), "schedule_id")),
    ({"unregistered_partition"}, lambda stage: ready(stage) and stage.raw.delete("rz:queues")),
]


@pytest.mark.parametrize(
    ("kinds", "damage"), DAMAGES, ids=[f"{number}-{min(kinds)}" for number, (kinds, _) in enumerate(DAMAGES)]
)
def test_what_a_foreign_hand_breaks_is_found(bare_stage: Stage, kinds: set[str], damage: Damage) -> None:
    bare_stage.check()
    damage(bare_stage)
    with pytest.raises(AssertionError) as caught:
        bare_stage.check()
    assert {line.split("'")[1] for line in str(caught.value).splitlines() if line.startswith("Finding(")} == kinds


def test_too_many_attempts_for_the_jobs_own_limit_are_found(bare_stage: Stage) -> None:
    _hash(bare_stage, lambda stage: ready(stage, max_retries=2), "attempts", "3")
    bare_stage.check()
    _hash(bare_stage, lambda stage: ready(stage, max_retries=2), "attempts", "4")
    with pytest.raises(AssertionError, match="wrong_attempts"):
        bare_stage.check()
