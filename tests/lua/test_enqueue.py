"""Enqueue writes jobs, all or none, once."""

from typing import Any

import pytest
import redis

from rzsched import calls
from rzsched.errors import ServerUnsuitable
from rzsched.job import prepare
from rzsched.options import JobOptions
from tests.states import Stage, dead, outcome, start, succeeded


def listen(stage: Stage) -> Any:
    listener = stage.raw.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(stage.place.wake_channel)
    while listener.get_message(timeout=0.05):  # the subscription itself
        pass
    return listener


def heard(listener: Any) -> list[int]:
    """Give all that was published so far: the server pushes it before it answers the publisher."""
    times = []
    while message := listener.get_message(timeout=0.05):
        times.append(int(message["data"]))
    return times


def test_a_job_due_now_is_ready_and_one_due_later_is_scheduled(stage: Stage) -> None:
    now, later, at = stage.enqueue(), stage.enqueue(delay=60), stage.enqueue(run_at=stage.now_ms / 1000 + 5)
    assert stage.raw.zrange(stage.place.scheduled, 0, -1, withscores=True) == [
        (at.encode(), stage.now_ms + 5000),
        (later.encode(), stage.now_ms + 60_000),
    ]
    assert [values for _, values in stage.raw.xrange(stage.place.ready[5])] == [{b"id": now.encode()}]
    assert stage.job(now)["entry"].startswith("5/")


def test_a_time_that_has_passed_is_now(stage: Stage) -> None:
    late = stage.enqueue(run_at=stage.now_ms / 1000 - 100, priority=0)
    assert stage.job(late)["entry"].startswith("0/")


def test_only_the_first_call_into_a_partition_is_fresh(stage: Stage) -> None:
    assert stage.enqueue_many([{}, {}]).fresh
    assert not stage.enqueue_many([{}]).fresh


def test_a_key_in_use_answers_its_holder_and_writes_nothing(stage: Stage) -> None:
    first = stage.enqueue(idempotency_key="k")
    answer = stage.enqueue_many([{"idempotency_key": "k"}, {}, {"idempotency_key": "j"}, {"idempotency_key": "j"}])
    assert answer.ids[0] == first
    assert answer.ids[2] == answer.ids[3]
    assert [each.created for each in answer.ids] == [False, True, True, False]
    assert stage.check().counts.ready == 3


def test_a_key_stays_with_a_job_that_succeeded_and_leaves_a_dead_one(stage: Stage) -> None:
    done = succeeded(stage, idempotency_key="done")
    grave = dead(stage, idempotency_key="dead")
    assert stage.enqueue(idempotency_key="done") == done
    assert stage.enqueue(idempotency_key="dead") != grave


def test_a_key_outlives_the_record_of_its_job(stage: Stage) -> None:
    done = succeeded(stage, idempotency_key="k")
    stage.raw.delete(stage.place.job(done))
    assert stage.enqueue(idempotency_key="k") == done


def test_a_key_whose_job_a_foreign_hand_deleted_is_free(stage: Stage) -> None:
    gone = stage.enqueue(delay=60, idempotency_key="k")
    stage.raw.delete(stage.place.job(gone))
    stage.raw.zrem(stage.place.scheduled, gone)
    assert stage.enqueue(idempotency_key="k") != gone


def test_a_repeated_call_changes_nothing(stage: Stage) -> None:
    jobs = [prepare(JobOptions(queue="q", idempotency_key=key, delay=delay), "t", (), None, 1 << 20)
            for key, delay in [("a", None), (None, None), (None, 60), ("b", 60)]]  # fmt: skip
    call = calls.enqueue(stage.place, jobs, stage.now).call()
    first = stage.run(call)
    runs = stage.claim("w")
    again = stage.run(call)
    assert again.ids == first.ids
    assert all(each.created for each in again.ids)
    assert stage.check().counts.running == len(runs) == 2
    assert stage.raw.hget(stage.place.fixed[3], "enqueued") == b"4"


def test_a_repeated_call_for_a_job_that_died_leaves_it_dead(stage: Stage) -> None:
    job = prepare(JobOptions(queue="q", idempotency_key="k"), "t", (), None, 1 << 20)
    call = calls.enqueue(stage.place, [job], stage.now).call()
    stage.run(call)
    (run,) = stage.claim("w")
    stage.finish("w", outcome("DEAD", run, c="k"))
    assert stage.run(call).ids == [run.id]
    assert stage.state(run.id) == "DEAD"


@pytest.mark.parametrize(("position", "value"), [(11, "soon"), (16, "many"), (2, 3), (2, 1)])
def test_a_malformed_call_writes_none_of_its_jobs(stage: Stage, position: int, value: str | int) -> None:
    job = prepare(JobOptions(queue="q"), "t", (), None, 1 << 20)
    call = calls.enqueue(stage.place, [job, job], stage.now).call()
    args = list(call.args)
    args[position] = value
    with pytest.raises(ServerUnsuitable):
        stage.run(calls.Call("enqueue", call.keys, args, call.read))
    assert stage.raw.keys("rz:{q.0}:*") == []


def test_a_full_server_writes_none_of_the_jobs(own_server: Any) -> None:
    stage = Stage(own_server().url)
    stage.raw.config_set("maxmemory", 1)
    with pytest.raises(ServerUnsuitable, match="memory"):
        stage.enqueue_many([{"idempotency_key": "k"}, {"delay": 60}, {}])
    stage.raw.config_set("maxmemory", 0)
    assert stage.raw.keys("rz:{q.0}:*") == []
    stage.close()


def test_the_scheduler_is_woken_only_for_a_new_earliest_job(stage: Stage) -> None:
    listener = listen(stage)
    stage.enqueue(delay=60)
    stage.enqueue(delay=90)
    stage.enqueue()
    stage.enqueue_many([{"delay": 100}, {"delay": 30}, {"delay": 40}])
    assert heard(listener) == [stage.now_ms + 60_000, stage.now_ms + 30_000]
    listener.close()


def test_a_retry_wakes_the_scheduler_too(stage: Stage) -> None:
    stage.enqueue(delay=60)
    first, second = start(stage, "w"), start(stage, "w2")
    listener = listen(stage)
    stage.finish("w", outcome("RETRY", first, "no", "90000"))
    stage.finish("w2", outcome("RETRY", second, "no", "5000"))
    assert heard(listener) == [stage.now_ms + 5000]
    listener.close()


def test_the_servers_time_is_stored_where_the_clients_differs(stage: Stage) -> None:
    stage.now_ms += 3_600_000
    assert stage.job(stage.enqueue())["created_at"] == stage.now


def test_a_key_of_any_bytes_and_a_payload_of_any_bytes_survive(stage: Stage, raw: redis.Redis) -> None:
    key = "a:b {x} é \x00\n*" + "k" * 400
    job_id = stage.enqueue(idempotency_key=key)
    assert raw.get(f"rz:{{q.0}}:idem:{key}") == job_id.encode()
