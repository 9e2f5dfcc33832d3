"""A worker process as its users meet it: what handlers see and do, how runs end, and what it leaves behind."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rzsched import Backoff, Client, JobCancelled, JobFailed, JobId, JobSpec, keys
from tests.conftest import OwnServer
from tests.fleet import Fleet, until
from tests.producer import Front, port_of
from tests.servers import Server

LEASE_S = 3


@pytest.fixture(scope="module")
def shop(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker with ten slots, which all tests of what handlers see and do may share."""
    with Server.start(server_kind, dir=tmp_path_factory.mktemp("shop")) as server, Fleet(server.url) as fleet:
        fleet.worker("-c", "10", "--lease", str(LEASE_S))
        yield fleet


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    """No worker yet: the test starts its own."""
    with Fleet(redis_url) as made:
        yield made
        made.check()


@pytest.fixture(autouse=True)
def one_place(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "shop" in request.fixturenames:
        request.getfixturevalue("shop").check()


def run(fleet: Fleet, task: str, *args: Any, **options: Any) -> Any:
    """Have a job run, and give its result."""
    return fleet.client.wait(fleet.client.schedule_job(task, args=args, **options), 20)


def ids(fleet: Fleet, task: str, count: int, *args: Any, **options: Any) -> list[JobId]:
    return fleet.client.schedule_many(JobSpec(task, args=args, **options) for _ in range(count))


# ---- what handlers see


@pytest.mark.parametrize("task", ["echo", "echo_plain"])
def test_a_result_comes_back_as_it_was(shop: Fleet, task: str) -> None:
    value = {"at": datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), "each": (1, {2, 3}), "big": 2**70, "raw": b"\x00\xff"}
    assert run(shop, task, value) == value
    assert run(shop, task) is None


def test_a_handler_sees_its_own_run(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("about", idempotency_key="mine", queue="default")
    told = shop.client.wait(job_id, 20)
    assert told["fence"] > 0
    assert told == {
        "job_id": job_id, "task": "about", "queue": "default", "attempt": 1, "fence": told["fence"],
        "execution_id": job_id, "idempotency_key": "mine", "state": {"pool": "open", "pid": told["state"]["pid"]},
        "scheduled_for": None, "lost": False, "cancelled": False, "thread": "MainThread",
    }  # fmt: skip
    plain = run(shop, "about_plain")
    assert plain["thread"] != "MainThread"
    assert plain["idempotency_key"] is None
    assert plain["state"] == told["state"]  # one lifespan for the whole process


def test_attempt_and_fence_grow_and_the_execution_id_stays(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("about", kwargs={"fails": 2})
    assert shop.client.wait(job_id, 20)["attempt"] == 3
    runs = shop.ledger(job=job_id)
    assert [each["attempt"] for each in runs] == [1, 2, 3]
    fences = [each["fence"] for each in runs]
    assert fences == sorted(set(fences))
    assert shop.client.get_job_status(job_id).attempts == 3


def test_progress_shows_while_the_job_runs(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("progressing", args=["progress"])
    visit = shop.stand.next("progress")
    until(lambda: shop.client.get_job_status(job_id).progress == "0.5 half", limit_s=2)
    status = shop.client.get_job_status(job_id)
    assert status.state == "RUNNING" and status.locked_by and status.lock_expiry
    visit.say()
    shop.client.wait(job_id, 20)


def test_a_line_logged_by_a_handler_names_its_job(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("log_something")
    shop.client.wait(job_id, 20)
    (worker,) = shop._started[:1]
    line = shop.wait_for_line(worker, "a word from the handler")
    assert f"job={job_id}" in line and "attempt=1" in line


# ---- how runs end


def test_a_handler_chooses_its_own_delay(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("retries_after", args=[0.4])
    assert shop.client.wait(job_id, 20) == 2
    first, second = (each["time"] for each in shop.ledger(job=job_id))
    assert 0.4 <= second - first < 0.8


def test_a_handler_gives_up_at_once(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("dies", args=["no such customer"], max_retries=5)
    with pytest.raises(JobFailed, match="no such customer"):
        shop.client.wait(job_id, 20)
    assert len(shop.ledger(job=job_id)) == 1
    (grave,) = [each for each in shop.client.list_dead("default") if each.id == job_id]
    assert (grave.error, grave.attempts, grave.task) == ("no such customer", 1, "dies")


def test_exception_types_decide_between_retry_and_death(shop: Fleet) -> None:
    assert run(shop, "retries_key_errors", "key") == "done"
    with pytest.raises(JobFailed, match="not again"):
        run(shop, "retries_key_errors", "value")
    assert run(shop, "dies_on_lookup_errors", "value") == "done"
    with pytest.raises(JobFailed, match="at once"):
        run(shop, "dies_on_lookup_errors", "key")


def test_three_retries_mean_four_attempts(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("always_fails")
    with pytest.raises(JobFailed, match="ValueError: no"):
        shop.client.wait(job_id, 20)
    assert [each["attempt"] for each in shop.ledger(job=job_id)] == [1, 2, 3, 4]
    status = shop.client.get_job_status(job_id)
    assert (status.state, status.attempts, status.max_retries) == ("DEAD", 4, 3)
    once = shop.client.schedule_job("always_fails", max_retries=0)
    with pytest.raises(JobFailed):
        shop.client.wait(once, 20)
    assert len(shop.ledger(job=once)) == 1


def test_the_waits_between_attempts_grow_as_the_backoff_says(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("fails_slowly")
    shop.wait_for_state(job_id, "FAILED")
    status = shop.client.get_job_status(job_id)
    assert status.last_error == "ValueError: no"
    assert status.next_run_at is not None and status.next_run_at - datetime.now(UTC) < timedelta(seconds=0.4)
    with pytest.raises(JobFailed):
        shop.client.wait(job_id, 20)
    times = [each["time"] for each in shop.ledger(job=job_id)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert 0.3 <= gaps[0] < 0.5 and 0.6 <= gaps[1] < 0.8
    jittered = ids(shop, "always_fails", 20, max_retries=1, backoff=Backoff(base=1, factor=1, max=1, jitter=0.5))
    for each in jittered:
        with pytest.raises(JobFailed):
            shop.client.wait(each, 20)
    waits = [later["time"] - earlier["time"] for earlier, later in (shop.ledger(job=each) for each in jittered)]
    assert all(0.45 < wait < 1.7 for wait in waits) and max(waits) - min(waits) > 0.2


def test_an_async_handler_is_cancelled_at_its_timeout(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("too_slow")
    with pytest.raises(JobFailed, match="JobTimeout"):
        shop.client.wait(job_id, 20)
    (begun,) = shop.ledger(job=job_id)
    finished = shop.client.get_job_status(job_id).finished_at
    assert finished is not None and 0.25 < finished.timestamp() - begun["time"] < 1


def test_a_plain_handler_is_interrupted_at_its_timeout(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("too_slow_plain", args=["plain"])
    shop.stand.next("plain interrupted")
    with pytest.raises(JobFailed, match="JobTimeout"):
        shop.client.wait(job_id, 20)


def test_a_timeout_of_the_job_beats_the_tasks(shop: Fleet) -> None:
    with pytest.raises(JobFailed, match="JobTimeout"):
        run(shop, "sleeps", 10, timeout=0.2, max_retries=0)


def test_quick_jobs_leave_their_timeouts_behind(shop: Fleet) -> None:
    """Many runs with timeouts, so that an interrupt or cancellation meant for one could reach another."""
    tasks = ("quick_with_timeout", "quick_plain_with_timeout")
    jobs = shop.client.schedule_many(JobSpec(tasks[n % 2], args=[n], timeout=5) for n in range(400))
    assert [shop.client.wait(job_id, 20) for job_id in jobs] == list(range(400))


def test_interrupts_that_come_too_late_hit_nobody_else(shop: Fleet) -> None:
    """The timeout is about as long as the handlers take: it fires while they end."""
    jobs = shop.client.schedule_many(
        JobSpec("sleeps_plain", args=[0.02], timeout=0.02, max_retries=0) for _ in range(100)
    )
    bystanders = shop.client.schedule_many(JobSpec("echo_plain", args=[n]) for n in range(100))
    assert [shop.client.wait(job_id, 20) for job_id in bystanders] == list(range(100))
    until(lambda: {shop.state(job_id) for job_id in jobs} <= {"SUCCEEDED", "DEAD"})


def test_a_plain_handler_that_ignores_its_timeout_is_given_up_and_its_slot_is_freed_later(fleet: Fleet) -> None:
    fleet.worker("-c", "1", "--lease", "1")
    stubborn = fleet.client.schedule_job("ignores_its_timeout", args=["stubborn"])
    visit = fleet.stand.next("stubborn")
    began = time.monotonic()
    with pytest.raises(JobFailed, match="JobTimeout"):
        fleet.client.wait(stubborn, 10)
    assert 1 <= time.monotonic() - began < 2.5  # its timeout and a lease
    other = fleet.client.schedule_job("echo", args=["next"])
    with pytest.raises(TimeoutError):
        fleet.client.wait(other, 0.5)
    assert fleet.state(other) == "PENDING"
    visit.say("go")
    fleet.stand.next("stubborn").say("go")  # the interrupt came when the first answer did
    assert fleet.client.wait(other, 10) == "next"
    assert fleet.client.get_job_status(stubborn).state == "DEAD"


def test_a_result_that_cannot_be_stored_is_no_failure(shop: Fleet) -> None:
    assert run(shop, "returns_what_cannot_be_stored") is None


# ---- cancelling


def test_a_running_async_handler_is_cancelled_at_once(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("gated", args=["to cancel"])
    shop.stand.next("to cancel")
    began = time.monotonic()
    assert shop.client.cancel_job(job_id)
    visit = shop.stand.next("to cancel cancelled")
    assert (visit["cancelled"], visit["lost"]) == (True, False)
    with pytest.raises(JobCancelled):
        shop.client.wait(job_id, 20)
    assert time.monotonic() - began < LEASE_S / 3, "it came with the renewal only"
    assert shop.state(job_id) == "CANCELLED"
    assert not shop.client.cancel_job(job_id)


def test_a_cancelled_handler_may_clean_up_undisturbed(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("cleans_up_when_cancelled", args=["cleaner"])
    shop.stand.next("cleaner")
    shop.client.cancel_job(job_id)
    cleaning = shop.stand.next("cleaner cleaning")
    shop.client.cancel_job(job_id)
    renewed = shop.client.get_job_status(job_id).lock_expiry
    assert renewed is not None  # two renewals from here, which both tell of the request again
    twice = renewed + timedelta(seconds=LEASE_S / 2)
    until(lambda: (shop.client.get_job_status(job_id).lock_expiry or renewed) > twice)
    cleaning.say("well done")
    assert shop.stand.next("cleaner cleaned")["word"] == "well done"
    shop.wait_for_state(job_id, "CANCELLED")


def test_a_running_plain_handler_is_asked_to_stop(shop: Fleet) -> None:
    job_id = shop.client.schedule_job("until_cancelled", args=["plain"])
    shop.stand.next("plain")
    assert shop.client.cancel_job(job_id)
    assert shop.stand.next("plain cancelled")["lost"] is False
    # It heeded the request by ending well: what it did counts.
    assert shop.client.wait(job_id, 20) == "stopped by itself"


def test_a_job_that_ended_keeps_its_lease_while_a_blocked_loop_holds_its_outcome_up(fleet: Fleet) -> None:
    """Else it would be recovered, and its effect repeated, though it had succeeded."""
    ended = fleet.client.schedule_job("record", priority=0)
    blocker = fleet.client.schedule_job("blocks_the_loop", args=[3], priority=9)
    fleet.worker("-c", "5", "--lease", "1")  # its first claim takes both
    fleet.client.wait(blocker, 20)
    fleet.client.wait(ended, 20)
    assert [run["attempt"] for run in fleet.ledger(job=ended)] == [1]
    assert fleet.client.get_job_status(ended).attempts == 1
    assert fleet.client.queue_stats("default").recovered == 0


def test_a_claimed_job_that_has_not_begun_never_begins_once_cancelled(fleet: Fleet) -> None:
    """A handler that blocks the loop keeps the other claimed ones from beginning."""
    blocker = fleet.client.schedule_job("blocks_the_loop", args=[2.5], priority=0)
    waiting = fleet.client.schedule_job("record", priority=9)
    fleet.worker("-c", "5", "--lease", "2")  # its first claim takes both, the blocker first
    fleet.wait_for_state(waiting, "RUNNING")
    until(lambda: fleet.ledger(job=blocker))
    assert fleet.client.cancel_job(waiting)
    with pytest.raises(JobCancelled):
        fleet.client.wait(waiting, 10)
    assert fleet.ledger(job=waiting) == []
    fleet.client.wait(blocker, 10)


def test_a_job_that_could_not_begin_in_time_expires(fleet: Fleet) -> None:
    late = fleet.client.schedule_job("record", expires=0.05)
    fresh = fleet.client.schedule_job("record", expires=60)
    until(lambda: fleet.client.queue_stats("default").oldest_ready_age > 0.1)
    fleet.worker()
    with pytest.raises(JobCancelled, match="expired"):
        fleet.client.wait(late, 10)
    fleet.client.wait(fresh, 10)
    assert [each["job"] for each in fleet.ledger()] == [fresh]


# ---- who comes first


def test_priority_0_comes_first(fleet: Fleet) -> None:
    order = [7, 0, 9, 3, 5, 0]
    jobs = [fleet.client.schedule_job("record", priority=priority) for priority in order]
    fleet.worker("-c", "1", "--burst").wait(20)
    ran = [order[jobs.index(each["job"])] for each in fleet.ledger()]
    assert ran == sorted(order)


def test_a_flood_of_priority_0_starves_nobody(fleet: Fleet) -> None:
    fleet.worker("-c", "4")
    flood = set(ids(fleet, "sleeps", 400, 0.02, priority=0))
    low = ids(fleet, "record", 5, priority=9) + ids(fleet, "record", 5, priority=6)
    began = time.monotonic()
    for job_id in low:
        fleet.client.wait(job_id, 20)
    ran_before = [each["job"] for each in fleet.ledger() if each["task"] == "sleeps"]
    assert set(ran_before) <= flood
    assert len(ran_before) < 300, "the flood came first"
    assert time.monotonic() - began < 4
    until(lambda: fleet.client.queue_stats("default").succeeded == 410)


def test_two_floods_starve_no_third_priority(fleet: Fleet) -> None:
    """With one slot a turn must go round all priorities, not always to the same."""
    fleet.worker("-c", "1")
    ids(fleet, "nothing", 600, priority=0)
    ids(fleet, "nothing", 600, priority=5)
    low = ids(fleet, "record", 5, priority=9)
    for job_id in low:
        fleet.client.wait(job_id, 20)
    left = fleet.client.queue_stats("default").ready
    assert left > 300, "the floods were over before"
    until(lambda: fleet.client.queue_stats("default").succeeded == 1205)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_worker_holds_no_more_jobs_than_it_has_slots(fleet: Fleet, slots: int) -> None:
    """Jobs come into several priority streams at once, into an idle and into a busy worker."""
    worker = fleet.worker("-c", str(slots))
    worker.send_signal(signal.SIGSTOP)  # so that one read finds entries in all streams
    jobs = [fleet.client.schedule_job("gated", args=["slot"], priority=n % 10) for n in range(20)]
    worker.send_signal(signal.SIGCONT)
    done = 0
    while done < len(jobs):
        visits = [fleet.stand.next("slot") for _ in range(min(slots, len(jobs) - done))]
        until(lambda: fleet.pending() <= slots, "no job is held beyond the slots", limit_s=2)
        for _ in range(20):
            assert fleet.pending() <= slots
        assert fleet.stand.waiting == []
        stats = fleet.client.queue_stats("default")
        assert (stats.running, stats.ready) == (len(visits), len(jobs) - done - len(visits))
        visits[0].say()
        done += 1
        for visit in visits[1:]:
            visit.say()
            done += 1
    for job_id in jobs:
        fleet.client.wait(job_id, 20)
        assert fleet.client.get_job_status(job_id).attempts == 1


@pytest.mark.parametrize("slots", ["1", "8"])
def test_queues_share_the_slots_by_weight(fleet: Fleet, slots: str) -> None:
    heavy = ids(fleet, "record", 300, queue="heavy")
    light = ids(fleet, "record", 300, queue="light")
    fleet.worker("-q", "heavy:3", "-q", "light:1", "-c", slots)
    fleet.client.wait(heavy[-1], 20)
    ran = [each["job"].split(".")[0] for each in fleet.ledger()]
    count = Counter(ran[:240])
    assert 150 <= count["heavy"] <= 210, count
    fleet.client.wait(light[-1], 20)


def test_a_queue_is_served_while_another_one_floods_the_worker(fleet: Fleet) -> None:
    fleet.worker("-q", "flood", "-q", "calm", "-c", "2")
    ids(fleet, "sleeps", 300, 0.01, queue="flood")
    until(fleet.ledger)
    for _ in range(5):
        began = time.monotonic()
        run(fleet, "record", queue="calm")
        assert time.monotonic() - began < 0.5
    assert fleet.client.queue_stats("flood").ready > 50
    until(lambda: fleet.client.queue_stats("flood").succeeded == 300)


# ---- games that handlers play


def test_a_hook_hears_of_each_event_and_its_failure_changes_nothing(fleet: Fleet) -> None:
    worker = fleet.worker("--lease", "1", env={"RZSCHED_TEST_HOOKS": "1"})
    good = fleet.client.schedule_job("echo")
    bad = fleet.client.schedule_job("always_fails", max_retries=1)
    fleet.client.wait(good, 10)
    with pytest.raises(JobFailed):
        fleet.client.wait(bad, 10)
    heard = [fleet.stand.next(f"hook {kind}") for kind in ("started", "started", "started", "succeeded", "failed",
                                                          "failed", "dead")]  # fmt: skip
    assert {(visit["job"], visit["attempt"]) for visit in heard[:3]} == {(good, 1), (bad, 1), (bad, 2)}
    assert (heard[3]["job"], heard[3]["task"]) == (good, "echo")
    assert [(visit["job"], visit["attempt"], visit["error"]) for visit in heard[4:6]] == [
        (bad, 1, "ValueError: no"), (bad, 2, "ValueError: no"),
    ]  # fmt: skip
    for kind in ("started", "succeeded", "failed", "dead"):
        fleet.stand.next(f"async hook {kind}")
    # A foreign hand takes a job from a run: `recovered` and, when the run ends, `stale`.
    lost = fleet.client.schedule_job("gated_plain", args=["lost"])
    first = fleet.stand.next("lost")
    worker.send_signal(signal.SIGSTOP)
    until(lambda: not fleet.redis.exists(fleet.place.lock(lost)), "the lease ends")
    other = fleet.worker("--lease", "1", env={"RZSCHED_TEST_HOOKS": "1"})
    assert fleet.stand.next("hook recovered")["job"] == lost
    second = fleet.stand.next("lost")
    worker.send_signal(signal.SIGCONT)
    first.say()
    assert fleet.stand.next("hook stale")["job"] == lost
    fleet.stand.next("async hook stale")
    second.say("second")
    assert fleet.client.wait(lost, 10) == "second"
    assert fleet.client.queue_stats("default").stale == 1
    assert [fleet.stop(each) for each in (worker, other)] == [0, 0]
    assert "hook failed" in worker.output()


@pytest.mark.parametrize("task", ["sets_variable", "sets_variable_plain"])
def test_context_variables_do_not_leak_from_job_to_job(shop: Fleet, task: str) -> None:
    jobs = shop.client.schedule_many(JobSpec(task, args=[str(n)]) for n in range(50))
    assert [shop.client.wait(job_id, 20) for job_id in jobs] == [f"|{n}" for n in range(50)]


GAMES = {
    "timeout": "in time", "group": "3", "failing group": None, "self cancel": None, "cancel and return": "same",
    "cancel, take back and return": "same", "cancel thrice": "same", "swallow": "same", "cancel later": "same",
}  # fmt: skip


def test_games_with_tasks_and_cancellation_end_with_their_own_job(fleet: Fleet) -> None:
    fleet.worker("-c", "1")
    for game, expected in GAMES.items():
        job_id = fleet.client.schedule_job("plays", args=[game])
        bystanders = ids(fleet, "quick_with_timeout", 3, 7) + ids(fleet, "sleeps", 1, 0.001)
        if expected is None:
            with pytest.raises(JobFailed):
                fleet.client.wait(job_id, 10)
        else:
            assert fleet.client.wait(job_id, 10) == (game if expected == "same" else expected), game
        assert [fleet.client.wait(each, 10) for each in bystanders] == [7, 7, 7, None], game
        assert {fleet.client.get_job_status(each).attempts for each in bystanders} == {1}, game


# ---- a run's end does not wait for others


def test_a_short_run_is_settled_while_a_long_one_that_came_with_it_goes_on(fleet: Fleet) -> None:
    for task in ("gated", "gated_plain"):
        fleet.worker("-c", "2", "--burst", wait=False)
        short = ids(fleet, "echo_plain" if task == "gated_plain" else "echo", 1, "short")[0]
        long = fleet.client.schedule_job(task, args=["long"])
        visit = fleet.stand.next("long")
        assert fleet.client.wait(short, 2) == "short"
        visit.say()
        fleet.client.wait(long, 10)


# ---- stopping


def test_sigterm_lets_running_jobs_end_and_hands_the_rest_back(fleet: Fleet) -> None:
    worker = fleet.worker("-c", "2")
    jobs = [fleet.client.schedule_job("gated" if n % 2 else "gated_plain", args=["job"]) for n in range(6)]
    visits = [fleet.stand.next("job") for _ in range(2)]
    worker.terminate()
    fleet.wait_for_line(worker, "worker stopping")
    assert fleet.pending() == 2
    visits[0].say()
    until(lambda: fleet.pending() == 1)
    assert worker.poll() is None
    visits[1].say()
    assert worker.wait(10) == 0
    assert fleet.stand.waiting == []
    counts = Counter((fleet.state(job), fleet.client.get_job_status(job).attempts) for job in jobs)
    assert counts == {("SUCCEEDED", 1): 2, ("PENDING", 0): 4}
    assert fleet.client.workers() == []
    assert "worker stopped" in worker.output()


@pytest.mark.parametrize("how", ["timeout", "second signal"])
def test_what_does_not_end_in_time_is_handed_back_with_no_attempt_used(fleet: Fleet, how: str) -> None:
    worker = fleet.worker("-c", "3", "--shutdown-timeout", "0.5" if how == "timeout" else "60")
    tasks = ["gated", "gated_plain", "heedless"]
    jobs = [fleet.client.schedule_job(task, args=[task]) for task in tasks]
    visits = [fleet.stand.next(task) for task in tasks]
    worker.terminate()
    if how == "second signal":
        fleet.wait_for_line(worker, "worker stopping")
        with pytest.raises(TimeoutError):
            fleet.client.wait(jobs[0], 0.3)
        worker.terminate()
    assert fleet.stand.next("gated cancelled")["lost"] is True
    assert worker.wait(10) == 0
    for job in jobs:
        status = fleet.client.get_job_status(job)
        assert (status.state, status.attempts, status.locked_by) == ("PENDING", 0, None)
    assert (fleet.pending(), len(visits)) == (0, 3)
    fleet.client.cancel_job(jobs[2])
    fleet.worker("-c", "3")
    for job, task in zip(jobs[:2], tasks, strict=False):
        fleet.stand.next(task).say("done")
        assert fleet.client.wait(job, 10) == "done"
        assert fleet.client.get_job_status(job).attempts == 1


def test_a_burst_ends_when_nothing_is_due_or_running(fleet: Fleet) -> None:
    ids(fleet, "record", 30)
    soon = fleet.client.schedule_job("record", delay=0.5)
    failing = fleet.client.schedule_job("always_fails", max_retries=1)
    later = fleet.client.schedule_job("record", delay=3600)
    worker = fleet.worker("--burst", wait=False)
    assert worker.wait(20) == 0
    assert fleet.state(soon) == "SUCCEEDED" and fleet.state(later) == "PENDING" and fleet.state(failing) == "DEAD"
    assert len(fleet.ledger()) == 33
    assert fleet.client.workers() == []


def test_a_burst_waits_for_a_retry_that_is_due_within_a_second(fleet: Fleet) -> None:
    job = fleet.client.schedule_job("retries_after", args=(0.8,))
    assert fleet.worker("--burst", wait=False).wait(20) == 0
    assert fleet.state(job) == "SUCCEEDED"


# ---- a server that is not always there


def test_a_server_that_is_away_at_the_start_is_waited_for(own_server: OwnServer) -> None:
    server = own_server()
    server.stop()
    with Fleet(server.url) as fleet:
        refused = fleet.worker("--no-wait", wait=False)
        assert refused.wait(20) == 4
        assert len(refused.output().splitlines()) == 1 and "Traceback" not in refused.output()
        worker = fleet.worker(wait=False)
        fleet.wait_for_line(worker, "waiting for the server")
        server.restart()
        fleet.wait_for_line(worker, "worker started")
        assert run(fleet, "echo", 1) == 1
        assert worker.output().count("waiting for the server") == 1
        waits = fleet.worker("-q", "other")
        server.stop()
        fleet.wait_for_line(waits, "the server is away")
        assert fleet.stop(waits) == 0, "a worker stops while its server is away"
        server.restart()
        fleet.check()


def test_a_restart_of_the_server_loses_no_outcome(own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    with Fleet(server.url) as fleet:
        worker = fleet.worker("-c", "20", "--lease", "10")
        running = [fleet.client.schedule_job("gated", args=[f"over {n}"]) for n in range(5)]
        visits = [fleet.stand.next(f"over {n}") for n in range(5)]
        flood = ids(fleet, "record", 500)
        until(lambda: len(fleet.ledger()) > 100)
        server.kill()
        for visit in visits[:3]:
            visit.say("meanwhile")
        until(lambda: len(fleet.ledger("end")) == 3)
        fleet.wait_for_line(worker, "the server is away")
        server.restart()
        for visit in visits[3:]:
            visit.say("after")
        words = [fleet.client.wait(job, 20) for job in running]
        assert words == ["meanwhile"] * 3 + ["after"] * 2
        for job in (*running, *flood):
            fleet.client.wait(job, 20)
        counts = Counter(each["job"] for each in fleet.ledger())
        assert set(counts) == {*running, *flood}
        assert set(counts.values()) == {1}, "a run whose outcome was lost was repeated"
        assert fleet.wait_for_line(worker, "the server is back")
        assert run(fleet, "echo", 1) == 1
        fleet.check()


def test_a_task_of_a_handler_that_exits_does_not_end_the_worker(fleet: Fleet) -> None:
    worker = fleet.worker()
    job = fleet.client.schedule_job("starts_a_task_that_exits")
    assert fleet.client.wait(job, 5) == "it raised SystemExit(3)"
    assert fleet.client.wait(fleet.client.schedule_job("echo", args=["on"]), 5) == "on"
    assert worker.poll() is None


@pytest.mark.parametrize("verb", ["finish", "claim"])
def test_jobs_claimed_in_an_answer_that_was_lost_are_handed_back(redis_url: str, verb: str) -> None:
    """The connection ends after the request has passed: the server has claimed, the worker does not know."""
    from rzsched.scripts import script

    cuts = itertools.count()
    with Front(port_of(redis_url)) as front, Fleet(redis_url) as fleet:
        def cut(command: list[bytes]) -> bool:
            limit_at = 4 + 4 + 3 - 1
            claims = command[0] == b"EVALSHA" and command[1] == script(verb).sha.encode() and command[limit_at] != b"0"
            return claims and next(cuts) % 3 == 1

        worker = fleet.worker("-c", "5", "--lease", "15", url=front.url)
        front.cut = cut
        jobs: list[str] = []
        for n in range(12):
            jobs += [fleet.client.schedule_job("record") for _ in range(4 + n)]
            for job in jobs[-4 - n:]:
                fleet.client.wait(job, 8)  # long before the lease would end
        assert next(cuts) > 3
        runs = Counter(each["job"] for each in fleet.ledger())
        assert set(runs) == set(jobs)
        assert set(runs.values()) == {1}
        assert {fleet.client.get_job_status(job).attempts for job in jobs} == {1}
        assert worker.poll() is None
        until(lambda: worker.output().count("the server is away") == worker.output().count("the server is back"))
        fleet.check()


def test_flushed_scripts_and_destroyed_groups_are_made_again(fleet: Fleet) -> None:
    worker = fleet.worker("-c", "4")
    running = fleet.client.schedule_job("gated", args=["over"])
    visit = fleet.stand.next("over")
    for _ in range(3):
        fleet.redis.script_flush()
        assert run(fleet, "echo", 1) == 1
        assert run(fleet, "echo", 2, delay=0.05) == 2
        for stream in fleet.place.ready:
            fleet.redis.xgroup_destroy(stream, keys.GROUP)
        assert run(fleet, "echo", 3) == 3
        fleet.redis.delete(*fleet.place.ready[6:])
        assert run(fleet, "echo", 4, priority=7) == 4
    visit.say("done")
    assert fleet.client.wait(running, 10) == "done"
    assert len(fleet.ledger(job=running)) == 1
    assert worker.poll() is None


def test_a_refusing_server_is_said_once_and_does_not_stop_the_work_later(own_server: OwnServer) -> None:
    server = own_server()
    with Fleet(server.url) as fleet:
        worker = fleet.worker("-c", "2")
        job = fleet.client.schedule_job("gated", args=["full"])
        visit = fleet.stand.next("full")
        fleet.redis.set(fleet.place.fixed[3] + "x", b"x")
        fleet.redis.rename(fleet.place.fixed[3], "elsewhere")
        fleet.redis.set(fleet.place.fixed[3], "not a hash")
        visit.say("done")
        fleet.wait_for_line(worker, "the server is away")
        until(lambda: fleet.redis.info("commandstats").get("cmdstat_evalsha", {}).get("failed_calls", 0) > 6)
        fleet.redis.rename("elsewhere", fleet.place.fixed[3])
        fleet.redis.delete(fleet.place.fixed[3] + "x")
        assert run(fleet, "echo", 1) == 1
        until(lambda: fleet.state(job) == "SUCCEEDED")
        assert worker.output().count("the server is away") == 1
        fleet.check()


# ---- the rest


def test_a_queue_that_is_new_to_the_scheduler_is_picked_up(fleet: Fleet) -> None:
    worker = fleet.worker("-q", "first", "-q", "second")
    fleet.client.schedule_job("echo", queue="third")
    assert run(fleet, "echo", 1, queue="first", delay=0.05) == 1
    assert run(fleet, "echo", 2, queue="second", delay=0.05) == 2
    other = fleet.worker("-q", "fourth", "--no-scheduler")
    assert run(fleet, "echo", 4, queue="fourth", delay=0.05) == 4
    (third,) = [each for each in fleet.client.queues() if each.queue == "third"]
    assert third.ready == 1
    assert [fleet.stop(each) for each in (worker, other)] == [0, 0]


def test_an_idle_worker_begins_at_once(shop: Fleet) -> None:
    run(shop, "at")
    late = sorted(run(shop, "at") for _ in range(50))
    assert late[25] < 0.01, late  # the entry's own time is whole milliseconds
    assert late[-2] < 0.05, late


def test_workers_are_listed_while_they_live(fleet: Fleet) -> None:
    worker = fleet.worker("-q", "a:2", "-q", "b", "-c", "7", "--lease", "3")
    (told,) = until(fleet.client.workers)
    assert (told.pid, told.queues, told.concurrency, told.lease) == (worker.pid, ("a", "b"), 7, 3.0)
    fleet.client.schedule_job("gated", args=["busy"], queue="a")
    visit = fleet.stand.next("busy")
    until(lambda: fleet.client.workers()[0].running == 1)
    killed = fleet.worker("-q", "b", "--lease", "1", "--no-scheduler")
    until(lambda: len(fleet.client.workers()) == 2)
    fleet.kill(killed)
    until(lambda: len(fleet.client.workers()) == 1, "a dead worker is forgotten", limit_s=3)
    visit.say()
    assert fleet.stop(worker) == 0
    assert fleet.client.workers() == []
    until(lambda: not list(fleet.redis.scan_iter("rz:worker:*")), limit_s=3)


def test_nothing_is_left_of_3000_jobs_but_what_expires(fleet: Fleet) -> None:
    worker = fleet.worker("-c", "50")
    specs = [
        JobSpec(("nothing", "echo_plain", "about")[n % 3], idempotency_key=f"k{n}" if n % 10 == 0 else None,
                delay=0.3 if n % 7 == 0 else None, priority=n % 10, retention=600)
        for n in range(3000)
    ]  # fmt: skip
    jobs = fleet.client.schedule_many(specs)
    until(lambda: fleet.client.queue_stats("default").succeeded == 3000)
    stats = fleet.client.queue_stats("default")
    assert (stats.ready, stats.running, stats.scheduled, stats.dead, stats.failed) == (0, 0, 0, 0, 0)
    assert (stats.stale, stats.late, stats.recovered) == (0, 0, 0)
    assert fleet.stop(worker) == 0
    base = fleet.place.base
    for_ever = {key.decode() for key in fleet.redis.scan_iter("*") if fleet.redis.ttl(key) == -1}
    ready = set(fleet.place.ready)
    assert for_ever == {"rz:queues", base + "fence", base + "stats", base + "tasks", *ready}
    assert sum(fleet.redis.xlen(stream) for stream in ready) == 0
    assert [len(fleet.redis.xinfo_consumers(stream, keys.GROUP)) for stream in ready] == [0] * 10
    kinds = Counter(key.decode().removeprefix(base).split(":")[0] for key in fleet.redis.scan_iter(base + "*"))
    assert (kinds["job"], kinds["idem"], kinds["done"], kinds["lock"]) == (3000, 300, 300, 0)
    assert {fleet.client.get_job_status(job).attempts for job in jobs[::50]} == {1}
    assert os.path.exists(fleet.folder)


def test_a_client_needs_no_task_code(redis_url: str) -> None:
    with Client(redis_url) as client, Fleet(redis_url) as fleet:
        job_id = client.schedule_job("always_fails")  # retries and backoff as the worker knows them
        fleet.worker("--burst", wait=False).wait(20)
        assert client.get_job_status(job_id).attempts == 4
        fleet.check()
