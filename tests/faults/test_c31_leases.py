"""C31: handlers that take many leases, or block all there is to block, keep their jobs."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rzsched import App, calls, keys
from rzsched.calls import Outcome
from rzsched.connect import LinkSettings, SyncLink
from rzsched.execution import OpeningRules, Run, open_run
from rzsched.lease import LeaseKeeper, WorkerCard
from tests.fleet import Fleet, until
from tests.producer import closing_hand

LEASE_S = 1.0
LONG_S = 5.0


def test_long_and_blocking_handlers_begin_once(redis_url: str) -> None:
    """Two workers for each queue, one slot each, so that an idle one stands ready to take what looks abandoned."""
    tasks = {"waits": "sleeps", "blocks": "blocks_the_loop", "plain": "sleeps_plain"}
    with Fleet(redis_url) as fleet:
        for queue in tasks:
            for _ in range(2):
                fleet.forker.worker(queues=[queue], concurrency=1, lease_s=LEASE_S, scheduler=False)
        fleet.forker.scheduler()
        until(lambda: len(fleet.client.workers()) == 6)
        jobs = [fleet.client.schedule_job(task, args=[LONG_S], queue=queue) for queue, task in tasks.items()]
        # The delay of a job is longer than its lease: that is no reason to take it from anybody.
        jobs.append(fleet.client.schedule_job("record", delay=2 * LEASE_S, queue="waits"))
        for job in jobs:
            fleet.client.wait(job, LONG_S + 5)
        assert Counter(each["job"] for each in fleet.ledger()) == dict.fromkeys(jobs, 1)
        for queue in tasks:
            stats = fleet.client.queue_stats(queue)
            assert (stats.recovered, stats.stale, stats.late) == (0, 0, 0), queue
        fleet.check()


def test_a_handler_that_holds_the_interpreter_lock_is_fenced_off_or_alone(redis_url: str) -> None:
    with Fleet(redis_url) as fleet:
        fleet.forker.scheduler()
        workers = [fleet.worker("-c", "1", "--lease", str(LEASE_S), "--no-scheduler") for _ in range(2)]
        job = fleet.client.schedule_job("holds_the_interpreter_lock", args=[2], max_retries=1)
        until(lambda: fleet.state(job) == "SUCCEEDED")
        runs = fleet.ledger()
        fences = [each["fence"] for each in runs]
        assert len(runs) <= 2 and fences == sorted(set(fences))
        output = "".join(worker.output() for worker in workers)
        assert "lease renewal is" in output or "no renewal for a whole lease" in output, "nobody is told why"
        until(lambda: fleet.pending() == 0)
        stats = fleet.client.queue_stats("default")
        # The first one's success changes nothing; the second's counts, though its lease ran out as well.
        assert (stats.succeeded, stats.stale, stats.dead) == (1, len(runs) - 1, 0)
        for worker in workers:
            assert fleet.stop(worker) == 0
        fleet.check()


def test_a_job_that_comes_back_to_the_worker_that_lost_it_has_one_run_that_counts(redis_url: str) -> None:
    """The older run is told at once, not with the next renewal, and the end of it costs the newer one nothing."""
    lease_s = 6.0
    with Fleet(redis_url) as fleet:
        worker = fleet.worker("--lease", str(lease_s))
        job = fleet.client.schedule_job("gated", args=["held"])
        first = fleet.stand.next("held")
        (card,) = fleet.client.workers()
        link = SyncLink(redis_url, LinkSettings())
        ((taken,),) = link.execute([calls.recover(fleet.place, worker=card.id)])
        link.close()
        assert (taken.id, taken.what) == (job, "RETRY")
        second = fleet.stand.next("held")
        assert second["pid"] == first["pid"] == worker.pid and second["fence"] > first["fence"]
        assert fleet.stand.next("held cancelled", limit_s=lease_s / 4)["lost"]
        lock = fleet.place.lock(job)
        until(lambda: fleet.redis.pttl(lock) < 1000 * lease_s * 5 / 6)
        until(lambda: fleet.redis.pttl(lock) > 1000 * lease_s * 5 / 6, "its lease is renewed", lease_s / 2)
        second.say("done")
        assert fleet.client.wait(job, 5) == "done"
        stats = fleet.client.queue_stats("default")
        assert (stats.recovered, stats.stale, stats.succeeded) == (1, 0, 1)
        assert fleet.stop(worker) == 0
        fleet.check()


def test_the_newer_run_of_a_job_is_not_touched_by_what_an_older_one_says_or_hears(redis_url: str, raw: Any) -> None:
    """The older one has ended, and its outcome is still to be settled."""
    lease_s = 3.0
    app = App(redis_url)

    @app.task
    def echo() -> None: ...

    rules = OpeningRules(app=app, state=None, lease_s=lease_s, unknown_delay_ms="1", unknown_grace_ms="1",
                         report=lambda *_: None)  # fmt: skip
    echo.enqueue()
    place, link = keys.partition("rz", "default", 0), SyncLink(redis_url, LinkSettings())
    with closing_hand(redis_url) as hand:
        (older,) = hand.claim()
        link.execute([calls.recover(place, worker=hand.worker)])
        (newer,) = hand.claim()
        link.close()
    run = open_run(rules, place, newer, time.monotonic())
    assert isinstance(run, Run)
    late: Outcome = ("SUCCEEDED", older.id, older.fence, older.entry, "", "0", "")
    stopped: list[str] = []
    keeper = LeaseKeeper(redis_url, WorkerCard(hand.worker, "rz", ("default",), 1, lease_s), {run.id: run},
                         {(older.id, older.fence): (place, late)}, stop_run=lambda _, reason: stopped.append(reason),
                         regained=lambda: None)  # fmt: skip
    keeper.report_progress(newer.id, newer.fence, "0.5")
    keeper.report_progress(older.id, older.fence, "0.9")  # its handler goes on for a while
    keeper.start()
    until(lambda: 0 < raw.pttl(place.lock(run.id)) <= 1000 * lease_s, "it has renewed")
    keeper.close()
    assert stopped == []
    assert raw.hget(place.job(run.id), "progress") == b"0.5"
    app.client.close()
