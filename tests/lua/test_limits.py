"""Limits of a queue, held in every claim: paused, so many at once, so many started in a time."""

import pytest

from rzsched import calls, keys
from rzsched.calls import Claims
from rzsched.growth import configure
from tests.states import LEASE_MS, Stage, outcome


def limit(stage: Stage, **limits: str) -> None:
    stage.run(configure(stage.place, limits, stage.now))


def claim(stage: Stage, worker: str = "w", most: int = 100, lease_ms: int = LEASE_MS, **more: list[str]) -> Claims:
    return stage.run(calls.claim(stage.place, worker, lease_ms, most, "", now_ms=stage.now, **more))


def finish(stage: Stage, *outcomes: calls.Outcome, most: int = 100) -> Claims:
    return stage.run(calls.finish(stage.place, "w", LEASE_MS, most, "", outcomes, stage.now)).claimed


def succeeded(runs: list[calls.Claimed]) -> list[calls.Outcome]:
    return [outcome("SUCCEEDED", run) for run in runs]


def ids(runs: list[calls.Claimed]) -> list[str]:
    return [run.id for run in runs]


def test_a_queue_without_limits_says_of_none(stage: Stage) -> None:
    stage.enqueue()
    assert claim(stage).gate == ""
    stage.enqueue()
    assert finish(stage).gate == ""


def test_of_a_paused_queue_nothing_is_claimed(stage: Stage) -> None:
    job_id = stage.enqueue()
    limit(stage, paused="1")
    for answer in (claim(stage), finish(stage)):
        assert (answer, answer.gate, answer.look_s) == ([], "PAUSED", 1.0)
    assert stage.run(calls.measure(stage.place)).limits == {"paused": 1}
    limit(stage, paused="")
    assert ids(claim(stage)) == [job_id]
    assert not stage.raw.exists("rz:{q.0}:limits")


def test_what_was_delivered_before_a_pause_goes_back(stage: Stage) -> None:
    job_id = stage.enqueue(delay=1)
    stage.now_ms += 5000
    stage.promote()
    due = stage.status(job_id).next_run_at  # type: ignore[union-attr]
    entries = stage.deliver("w")
    limit(stage, paused="1")
    assert claim(stage, delivered=entries) == []
    assert stage.check().counts.ready == 1
    assert stage.status(job_id).next_run_at == due  # type: ignore[union-attr]


def test_a_running_job_of_a_paused_queue_ends_and_due_ones_are_promoted(stage: Stage) -> None:
    stage.enqueue()
    stage.enqueue(delay=1)
    (run,) = claim(stage)
    limit(stage, paused="1")
    stage.now_ms += 2000
    assert stage.promote().count == 1
    assert finish(stage, outcome("SUCCEEDED", run)) == []
    assert stage.state(run.id) == "SUCCEEDED"


def test_no_more_than_the_limit_run_and_a_finish_makes_place(stage: Stage) -> None:
    jobs = stage.enqueue_many([{}] * 5).ids
    limit(stage, concurrency="2")
    first = claim(stage)
    assert (ids(first), first.gate) == (jobs[:2], "FULL")
    assert (claim(stage, "other"), claim(stage, "other").gate) == ([], "FULL")
    second = finish(stage, *succeeded(first[:1]))
    assert (ids(second), second.gate) == (jobs[2:3], "FULL")
    third = finish(stage, *succeeded([first[1], second[0]]))
    assert (ids(third), third.gate) == (jobs[3:], "FULL")
    assert finish(stage, *succeeded(third)).gate == ""
    assert not stage.raw.exists("rz:{q.0}:running")


@pytest.mark.parametrize("what", ["SUCCEEDED", "CANCELLED", "RETRY", "DEAD", "RELEASED", "UNKNOWN"])
def test_every_end_makes_place(stage: Stage, what: str) -> None:
    limit(stage, concurrency="1")
    stage.enqueue()
    (run,) = claim(stage)
    c = "60000" if what == "UNKNOWN" else ""
    finish(stage, outcome(what, run, "x", "60000", c), most=0)
    next_id = stage.enqueue()
    assert ids(claim(stage)) == [next_id]


def test_a_stale_finish_makes_no_place(stage: Stage) -> None:
    limit(stage, concurrency="1")
    stage.enqueue()
    (run,) = claim(stage)
    stage.lose_lease(run.id)
    stage.recover()
    (again,) = claim(stage, "other")
    stage.enqueue()
    answer = finish(stage, outcome("SUCCEEDED", run))
    assert (answer, answer.gate) == ([], "FULL")
    assert again.id == run.id


def test_a_crash_makes_place_when_its_lease_ends_and_not_before(stage: Stage) -> None:
    limit(stage, concurrency="1")
    stage.enqueue()
    claim(stage, lease_ms=5000)
    waiting = stage.enqueue()
    stage.now_ms += 4500
    answer = claim(stage, "other")
    assert (answer, answer.gate, answer.look_s) == ([], "FULL", 0.501)
    stage.now_ms += 499
    assert claim(stage, "other") == []
    stage.now_ms += 2
    assert ids(claim(stage, "other")) == [waiting]


def test_a_renewed_lease_keeps_its_place(stage: Stage) -> None:
    limit(stage, concurrency="1")
    stage.enqueue()
    (run,) = claim(stage, lease_ms=5000)
    stage.enqueue()
    stage.now_ms += 4000
    stage.run(calls.renew(stage.place, "w", 5000, [(run.id, run.fence, run.entry, "")], stage.now))
    stage.now_ms += 4000
    assert claim(stage, "other") == []


@pytest.mark.parametrize("way", ["recover", "release"])
def test_what_is_taken_back_or_handed_back_makes_place(stage: Stage, way: str) -> None:
    limit(stage, concurrency="1")
    stage.enqueue()
    (run,) = claim(stage)
    (stage.recover if way == "recover" else stage.release)("w")
    assert ids(claim(stage, "other")) == [run.id]


def test_what_runs_when_a_limit_is_set_counts(stage: Stage) -> None:
    stage.enqueue_many([{}] * 4)
    runs = claim(stage, most=2)
    limit(stage, concurrency="3")
    more = claim(stage, "other")
    assert (len(more), more.gate) == (1, "FULL")
    limit(stage, concurrency="")
    assert len(claim(stage, "other")) == 1
    assert len(runs) == 2


def test_so_many_start_in_any_span(stage: Stage) -> None:
    jobs = stage.enqueue_many([{}] * 5).ids
    limit(stage, rate="2", rate_ms="1000")
    first = claim(stage)
    assert (ids(first), first.gate, first.look_s) == (jobs[:2], "RATED", 1.0)
    stage.now_ms += 400
    answer = finish(stage, *succeeded(first))
    assert (answer, answer.gate, answer.look_s) == ([], "RATED", 0.6)
    stage.now_ms += 600
    second = claim(stage)
    assert ids(second) == jobs[2:4]
    assert [run.attempt for run in second] == [1, 1]
    stage.now_ms += 1000
    assert ids(claim(stage)) == jobs[4:]
    assert 0 < stage.raw.pttl("rz:{q.0}:started") <= 1000


def test_the_keys_of_a_limit_have_a_ttl(stage: Stage) -> None:
    limit(stage, rate="2", rate_ms="9000", concurrency="3")
    stage.enqueue()
    claim(stage, lease_ms=5000)
    assert 0 < stage.raw.pttl("rz:{q.0}:running") <= 5000
    assert 5000 < stage.raw.pttl("rz:{q.0}:started") <= 9000


def test_an_end_that_leaves_places_tells_who_waits(stage: Stage) -> None:
    limit(stage, concurrency="1")
    listener = stage.raw.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(keys.partition("rz", "q", 0).gate_channel)
    listener.get_message(timeout=1)

    def told() -> list[bytes]:
        found = []
        while message := listener.get_message(timeout=0.05):
            found.append(message["data"])
        return found

    stage.enqueue_many([{}] * 3)
    (run,) = claim(stage)
    (run,) = finish(stage, *succeeded([run]))
    assert told() == []  # whoever ends a run takes the next job by itself
    finish(stage, *succeeded([run]), most=0)
    assert told() == [b"OPEN"]
    claim(stage)
    stage.release("w")
    assert told() == [b"OPEN"]
    limit(stage, paused="1")
    limit(stage, paused="")
    assert told() == [b"PAUSED", b"OPEN"]
    listener.close()
