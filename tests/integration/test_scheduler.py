"""Schedulers as processes: how precisely they promote, how they share the partitions, and who takes over."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest

from rzsched import JobSpec, keys
from rzsched.config import SchedulerSettings
from rzsched.members import share_of
from tests.conftest import Process
from tests.fleet import Fleet, until

LEASE_S = 3.0


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as made:
        yield made
        made.check()


def lateness(fleet: Fleet, job_id: str) -> float:
    """Wait until a job is ready; give how many seconds after it was due that was."""
    entry = until(lambda: fleet.redis.hget(fleet.place.job(job_id), "entry"))
    due_at = fleet.redis.hget(fleet.place.job(job_id), "due_at")
    ready_at = entry[2:].split(b"-")[0]
    # What was due by the time it reached the server was ready at once.
    return (int(ready_at) - int(due_at or ready_at)) / 1000


def leases(fleet: Fleet, queues: list[str]) -> dict[str, str]:
    """Say who holds the lease of each queue's partition."""
    held = {queue: fleet.redis.get(keys.partition("rz", queue, 0).lease) for queue in queues}
    return {queue: holder.decode() for queue, holder in held.items() if holder}


def id_of(process: Process) -> str:
    line = next(line for line in process.output().splitlines() if "scheduler started" in line)
    return line.partition("id=")[2]


# ---- when


@pytest.mark.timeout(300)
@pytest.mark.alone
def test_a_due_job_is_promoted_within_milliseconds(fleet: Fleet) -> None:
    fleet.scheduler()
    fleet.client.schedule_job("t", delay=0.01)  # the queue is known from here
    until(lambda: fleet.client.queue_stats("default").ready == 1)
    late = []
    for _ in range(40):
        delay = random.uniform(0.02, 0.15)
        late.append(lateness(fleet, fleet.client.schedule_job("t", delay=delay)))
    assert min(late) >= 0, "a job must never be early"
    late.sort()
    assert late[20] <= 0.003, late
    assert late[-2] <= 0.03, late


def test_an_earlier_job_wakes_the_scheduler(fleet: Fleet) -> None:
    fleet.scheduler()
    for delay in (60, 30, 5, 0.3):
        far = fleet.client.schedule_job("t", delay=delay)
    assert lateness(fleet, far) < 0.05
    for n in range(20):  # each earlier than what is slept for, at any moment of the loop
        job_id = fleet.client.schedule_job("t", delay=0.05)
        fleet.client.schedule_job("t", delay=0.5 + n)
        assert lateness(fleet, job_id) < 0.05


def test_jobs_of_the_past_are_promoted_at_once(fleet: Fleet) -> None:
    fleet.scheduler()
    ids = [fleet.client.schedule_job("t", run_at=time.time() + 0.02) for _ in range(20)]
    for job_id in ids:
        assert lateness(fleet, job_id) < 0.2


def test_promotion_batches_are_bounded(fleet: Fleet) -> None:
    due = time.time() + 4
    fleet.client.schedule_many(JobSpec("t", run_at=due) for _ in range(5000))
    assert fleet.client.queue_stats("default").scheduled == 5000, "a busy machine has taken so long to write them"
    fleet.redis.config_resetstat()
    fleet.scheduler()
    until(lambda: fleet.client.queue_stats("default").ready == 5000)
    calls = {name: stats["calls"] for name, stats in fleet.redis.info("commandstats").items()}
    assert calls["cmdstat_xadd"] == 5000
    assert calls["cmdstat_zremrangebyrank"] == 5000 / SchedulerSettings().batch, "one for each batch"


def test_a_clock_that_was_set_back_holds_nothing_up(fleet: Fleet) -> None:
    """A due instant far ahead must not keep the scheduler from later, earlier ones that it was not told of."""
    fleet.scheduler()
    fleet.client.schedule_job("t", delay=3600)
    job_id = fleet.client.schedule_job("t", delay=1800)
    until(lambda: leases(fleet, ["default"]))
    fleet.redis.zadd(fleet.place.scheduled, {job_id: (time.time() - 1) * 1000})  # no word of it on the channel
    until(lambda: fleet.client.queue_stats("default").ready == 1, limit_s=2)


# ---- who


@pytest.mark.parametrize("members", [1, 2, 3, 7])
def test_every_member_computes_the_same_even_shares(members: int) -> None:
    places = [keys.partition("rz", f"q{n % 5}", n // 5) for n in range(23)]
    names = [f"host-{n}" for n in range(members)]
    shares = [share_of(me, random.sample(names, members), random.sample(places, 23)) for me in names]
    assert sorted(place.name for share in shares for place in share) == sorted(place.name for place in places)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_member_that_is_not_listed_yet_counts_itself() -> None:
    places = [keys.partition("rz", f"q{n}", 0) for n in range(4)]
    assert share_of("me", [], places) == places
    assert len(share_of("me", ["other"], places)) == 2


QUEUES = [f"q{n}" for n in range(6)]


def start_three(fleet: Fleet) -> dict[str, Process]:
    """Start three schedulers, and wait until they share six queues evenly."""
    for queue in QUEUES:
        fleet.redis.hset(keys.queues("rz"), queue, 1)
    started = [fleet.scheduler() for _ in range(3)]
    by_id = {id_of(process): process for process in started}

    def even() -> bool:
        held = leases(fleet, QUEUES)
        return len(held) == 6 and sorted(list(held.values()).count(each) for each in by_id) == [2, 2, 2]

    until(even, "two queues each")
    return by_id


def test_live_schedulers_share_the_partitions_and_take_over_a_dead_ones(fleet: Fleet) -> None:
    schedulers = start_three(fleet)
    held = leases(fleet, QUEUES)
    dead = held["q0"]
    fleet.kill(schedulers.pop(dead))
    orphans = [queue for queue, holder in held.items() if holder == dead]
    began = time.monotonic()
    jobs = [fleet.client.schedule_job("t", queue=queue, delay=0.05) for queue in QUEUES]
    until(lambda: all(fleet.client.queue_stats(queue).ready == 1 for queue in QUEUES))
    assert time.monotonic() - began < LEASE_S + 1.5, orphans
    assert set(leases(fleet, QUEUES).values()) <= set(schedulers)
    assert len(jobs) == 6


def test_a_scheduler_that_stands_still_is_replaced_and_does_no_harm_when_it_wakes(fleet: Fleet) -> None:
    schedulers = start_three(fleet)
    frozen = leases(fleet, QUEUES)["q0"]
    schedulers[frozen].send_signal(signal.SIGSTOP)
    until(lambda: frozen not in leases(fleet, QUEUES).values() and len(leases(fleet, QUEUES)) == 6, limit_s=6)
    for queue in QUEUES:
        fleet.client.schedule_many(JobSpec("t", queue=queue, delay=0.2) for _ in range(50))
    schedulers[frozen].send_signal(signal.SIGCONT)
    until(lambda: sum(fleet.client.queue_stats(queue).ready for queue in QUEUES) == 300)
    until(lambda: len(set(leases(fleet, QUEUES).values())) == 3, "it takes its share again", limit_s=6)


def test_a_scheduler_that_leaves_hands_over_at_once(fleet: Fleet) -> None:
    schedulers = start_three(fleet)
    leaving = leases(fleet, QUEUES)["q0"]
    for queue in QUEUES:
        fleet.client.schedule_many(JobSpec("t", queue=queue, delay=1 + n / 10) for n in range(10))
    process = schedulers.pop(leaving)
    assert fleet.stop(process) == 0
    until(lambda: set((held := leases(fleet, QUEUES)).values()) == set(schedulers) and len(held) == 6, limit_s=0.7)
    assert leaving.encode() not in fleet.redis.zrange(keys.schedulers("rz"), 0, -1)
    until(lambda: sum(fleet.client.queue_stats(queue).ready for queue in QUEUES) == 60)


def test_a_scheduler_may_serve_one_queue_only(fleet: Fleet) -> None:
    fleet.scheduler("-q", "mine")
    other = fleet.client.schedule_job("t", queue="other", delay=0.05)
    fleet.client.schedule_job("t", queue="mine", delay=0.1)
    until(lambda: fleet.client.queue_stats("mine").ready == 1)
    assert fleet.client.queue_stats("other").scheduled == 1
    assert fleet.state(other) == "PENDING"


def test_a_partition_that_a_foreign_hand_has_broken_does_not_hold_up_the_others(fleet: Fleet) -> None:
    fleet.client.schedule_job("t", queue="broken", delay=0.1)
    broken = keys.partition("rz", "broken", 0)
    kept = fleet.redis.dump(broken.scheduled)
    fleet.redis.delete(broken.scheduled)
    fleet.redis.set(broken.scheduled, "not a sorted set")
    scheduler = fleet.scheduler()
    fleet.client.schedule_job("t", queue="sound", delay=0.05)
    until(lambda: fleet.client.queue_stats("sound").ready == 1)
    fleet.wait_for_line(scheduler, "refused a command")
    fleet.redis.restore(broken.scheduled, 0, kept, replace=True)
    until(lambda: fleet.client.queue_stats("broken").ready == 1)
    assert scheduler.poll() is None


def test_scores_that_no_clock_reaches_harm_nobody(fleet: Fleet) -> None:
    far = [fleet.client.schedule_job("t", delay=3600) for _ in range(2)]
    fleet.redis.zadd(fleet.place.scheduled, {far[0]: float("inf"), far[1]: 1e300})
    scheduler = fleet.scheduler()
    job_id = fleet.client.schedule_job("t", delay=0.05)
    assert lateness(fleet, job_id) < 1
    again = fleet.client.schedule_job("t", delay=0.3)
    assert lateness(fleet, again) < 0.05
    assert scheduler.output().count("WARNING") == 0, scheduler.output()
