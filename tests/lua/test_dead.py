"""Replay puts dead jobs back to work, purge deletes them; prune keeps everything bounded."""

import threading
from collections.abc import Callable

import pytest

from rzsched import calls, keys
from tests.states import SEEDERS, Stage, dead, outcome, ready, running, scheduled, start


def foreign(stage: Stage) -> str:
    """Leave an entry without a job in the dead stream; give its stream id."""
    stage.raw.xadd(stage.place.ready[0], {b"\xff\x00": b"x"})
    stage.claim("nobody")
    return str(stage.raw.xrevrange(stage.place.dead, count=1)[0][0].decode())


def test_a_replayed_job_keeps_its_id_and_starts_its_attempts_again(stage: Stage) -> None:
    job_id = dead(stage, idempotency_key="k", priority=2)
    payload = stage.raw.hget(stage.place.job(job_id), "payload")
    assert stage.over_dead("replay", [job_id]) == calls.Page("", [(job_id, "OK")])
    job = stage.job(job_id)
    assert (job["state"], job["attempts"], job["replays"], job["past_attempts"]) == ("PENDING", "0", "1", "1")
    assert stage.raw.get("rz:{q.0}:idem:k") == job_id.encode()
    (run,) = stage.claim("w")
    assert (run.id, run.attempt, run.entry[0]) == (job_id, 1, "2")
    assert stage.raw.hget(stage.place.job(job_id), "payload") == payload
    stage.finish("w", outcome("DEAD", run, "again", c="k"))
    stage.over_dead("replay", [job_id])
    assert (stage.job(job_id)["replays"], stage.job(job_id)["past_attempts"]) == ("2", "2")


def test_a_cancel_or_unknown_task_of_an_earlier_life_is_forgotten(stage: Stage) -> None:
    run = start(stage, "w")
    stage.cancel(run.id)
    stage.finish("w", outcome("UNKNOWN", run, "unknown", "0", "0"))
    stage.over_dead("replay", [run.id])
    (again,) = stage.claim("w")
    assert stage.finish("w", outcome("UNKNOWN", again, "unknown", "0", "30000")).notes == {}


@pytest.mark.parametrize("verb", ["replay", "purge"])
@pytest.mark.parametrize("name", [name for name in SEEDERS if name != "dead"])
def test_what_is_not_dead_is_not_found(stage: Stage, verb: str, name: str) -> None:
    job_id = SEEDERS[name](stage)
    before = stage.job(job_id)
    assert stage.over_dead(verb, [job_id, "q.0.gone", "9-9", ""]).results == [
        (job_id, "NOT_FOUND"), ("q.0.gone", "NOT_FOUND"), ("9-9", "NOT_FOUND"), ("", "NOT_FOUND"),
    ]  # fmt: skip
    assert stage.job(job_id) == before


def test_a_key_that_another_job_holds_keeps_a_job_dead(stage: Stage) -> None:
    job_id = dead(stage, idempotency_key="k")
    holder = scheduled(stage, idempotency_key="k")
    assert stage.over_dead("replay", [job_id]).results == [(job_id, holder)]
    assert stage.state(job_id) == "DEAD"
    stage.cancel(holder)
    assert stage.over_dead("replay", [job_id]).results == [(job_id, "OK")]


def test_a_key_whose_holder_is_gone_is_taken_back(stage: Stage) -> None:
    job_id = dead(stage, idempotency_key="k")
    stage.raw.set("rz:{q.0}:idem:k", "q.0.gone")
    assert stage.over_dead("replay", [job_id]).results == [(job_id, "OK")]


def test_an_entry_without_a_job_cannot_be_replayed_but_purged_by_its_own_name(stage: Stage) -> None:
    grave = foreign(stage)
    assert stage.over_dead("replay", [grave]).results == [(grave, "NO_RECORD")]
    assert stage.over_dead("replay").results == [(grave, "NO_RECORD")]
    assert stage.over_dead("purge", [grave]).results == [(grave, "OK")]
    assert stage.raw.xlen(stage.place.dead) == 0


def test_a_dead_job_does_not_go_by_the_name_of_its_entry(stage: Stage) -> None:
    grave = stage.job(dead(stage))["entry"].removeprefix("dead/")
    for verb in ("replay", "purge"):
        assert stage.over_dead(verb, [grave]).results == [(grave, "NOT_FOUND")]
    assert stage.check().counts.dead == 1


def test_a_grave_whose_record_was_deleted_can_be_purged_by_its_stream_id(stage: Stage) -> None:
    job_id = dead(stage)
    grave = stage.job(job_id)["entry"].removeprefix("dead/")
    stage.raw.delete(stage.place.job(job_id))
    assert stage.over_dead("replay").results == [(job_id, "NO_RECORD")]
    assert stage.over_dead("purge", [grave]).results == [(grave, "OK")]


def test_a_second_grave_of_a_job_is_not_replayed(stage: Stage) -> None:
    job_id = dead(stage)
    second = stage.raw.xadd(stage.place.dead, {"id": job_id}).decode()
    assert stage.over_dead("replay", **{"after": second}).results == [(job_id, "NO_RECORD")]
    assert stage.over_dead("purge", **{"after": second}).results == [(job_id, "OK")]
    assert stage.state(job_id) == "DEAD"


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_pages_cover_the_whole_stream_and_no_more(stage: Stage, verb: str) -> None:
    jobs = [dead(stage) for _ in range(5)]
    last = stage.job(jobs[3])["entry"].removeprefix("dead/")
    first = stage.over_dead(verb, limit=2, to=last)
    assert first.results == [(job_id, "OK") for job_id in jobs[:2]]
    second = stage.over_dead(verb, limit=2, to=last, after=f"({first.last}")
    assert second.results == [(job_id, "OK") for job_id in jobs[2:4]]
    assert stage.over_dead(verb, limit=2, to=last, after=f"({second.last}") == calls.Page("", [])
    assert stage.state(jobs[4]) == "DEAD"


def test_a_purged_job_leaves_nothing(stage: Stage) -> None:
    jobs = [dead(stage, idempotency_key=key) for key in "ab"]
    assert stage.over_dead("purge", [jobs[1], jobs[1]]).results == [(jobs[1], "OK")]
    assert (stage.state(jobs[0]), stage.state(jobs[1])) == ("DEAD", "gone")
    assert stage.raw.keys("rz:{q.0}:idem:*") == []


def prune(stage: Stage, idle_s: float = 10_000, dead_limit: int = 10_000) -> tuple[int, int]:
    return stage.run(calls.prune(stage.place, idle_s, dead_limit, stage.now))


def test_only_consumers_with_nothing_pending_are_removed(stage: Stage) -> None:
    done, held = start(stage, "done"), running(stage)
    stage.finish("done", outcome("SUCCEEDED", done))
    stage.claim("idle")
    stage.enqueue(priority=0)
    stage.deliver("holds an unclaimed one")
    prune(stage, idle_s=0)
    names = [each["name"] for stream in stage.place.ready for each in stage.raw.xinfo_consumers(stream, keys.GROUP)]
    assert sorted(names) == [b"holds an unclaimed one", b"worker-1"]
    assert stage.state(held) == "RUNNING"


def test_consumers_that_were_seen_lately_stay(stage: Stage) -> None:
    run = start(stage, "w")
    stage.finish("w", outcome("SUCCEEDED", run))
    assert prune(stage, idle_s=100) == (0, 0)


def test_graves_over_the_limit_go_oldest_first_with_their_records(stage: Stage) -> None:
    foreign(stage)
    jobs = [dead(stage) for _ in range(4)]
    assert prune(stage, dead_limit=2) == (0, 3)
    assert [stage.state(job_id) for job_id in jobs] == ["gone", "gone", "DEAD", "DEAD"]
    assert stage.raw.hget(stage.place.fixed[3], "dead_trimmed") == b"3"
    assert prune(stage, dead_limit=2) == (0, 0)


def test_trimming_a_stray_grave_leaves_the_job_it_names(stage: Stage) -> None:
    job_id = ready(stage)
    stage.raw.xadd(stage.place.dead, {"id": job_id})
    assert prune(stage, dead_limit=0) == (0, 1)
    assert stage.state(job_id) == "PENDING"


def test_waiters_nobody_answered_are_forgotten(stage: Stage) -> None:
    job_id = scheduled(stage)
    stage.run(calls.watch(stage.place, job_id, 10))
    prune(stage)
    assert stage.raw.zcard("rz:{q.0}:waiting") == 1
    stage.now_ms += 60_000
    prune(stage)
    assert stage.raw.zcard("rz:{q.0}:waiting") == 0


def blocked(stage: Stage) -> int:
    return int(stage.raw.info("clients")["blocked_clients"])


def wait_for(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(2000):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError("the condition never came true")


def test_a_blocked_consumer_that_is_pruned_still_gets_the_next_entry(stage: Stage) -> None:
    stage.run(calls.join(stage.place, 15, []))
    answers: list[object] = []
    reader = threading.Thread(
        target=lambda: answers.append(
            stage.raw.xreadgroup(keys.GROUP, "blocked", dict.fromkeys(stage.place.ready, ">"), count=1, block=20_000)
        )
    )
    reader.start()
    wait_for(lambda: blocked(stage) == 1)
    prune(stage, idle_s=0)
    assert all(stage.raw.xinfo_consumers(stream, keys.GROUP) == [] for stream in stage.place.ready)
    job_id = stage.enqueue()
    reader.join(30)
    assert answers[0][0][1][0][1] == {b"id": job_id.encode()}  # type: ignore[index]
    entry = stage.job(job_id)["entry"]
    assert [run.id for run in stage.claim("blocked", delivered=[entry])] == [job_id]
