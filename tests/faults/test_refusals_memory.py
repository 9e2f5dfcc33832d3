"""A server whose memory is full takes nothing new, and lets workers finish what there is, which frees memory."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from rzsched import JobSpec
from rzsched.errors import ServerUnsuitable
from tests.conftest import OwnServer
from tests.fleet import Fleet, until

LEASE_S = 1.0
JOBS = 1500
PAYLOAD = "x" * 1000


def fill(raw: Any) -> int:
    """Set the limit below what is used, by half of what waits, and give it."""
    limit = int(raw.info("memory")["used_memory"]) - 1_000_000
    raw.config_set("maxmemory", limit)
    return limit


def assert_refused(fleet: Fleet) -> None:
    began = time.monotonic()
    for said in ({}, {"delay": 60}, {"idempotency_key": "k"}, {"queue": "new"}):
        with pytest.raises(ServerUnsuitable, match="raise maxmemory"):
            fleet.client.schedule_job("record", **said)
    assert time.monotonic() - began < 1, "producers are told at once"


def test_workers_finish_what_there_is_and_free_memory(own_server: OwnServer) -> None:
    server = own_server()
    raw = redis.Redis.from_url(server.url)
    with raw, Fleet(server.url) as fleet:
        victim = fleet.forker.worker(lease_s=LEASE_S, concurrency=5)
        held = fleet.client.schedule_job("gated", args=["held"])
        first = fleet.stand.next("held")
        fleet.client.pause("default")
        bulk = [JobSpec("echo", args=(PAYLOAD,), retention=0) for _ in range(JOBS)]
        fleet.client.schedule_many(bulk)
        retried = fleet.client.schedule_job("fails_slowly")
        later = fleet.client.schedule_job("record", delay=2 * LEASE_S)
        limit = fill(raw)
        assert_refused(fleet)
        # Recovery, joining, leases, promotion, claims, retries and the grave need memory too, and get it.
        fleet.forker.kill(victim)
        worker = fleet.worker("-c", "20", "--lease", str(LEASE_S))
        fleet.client.resume("default")
        again = fleet.stand.next("held")
        assert again["fence"] > first["fence"]
        fleet.client.wait(later, 10)
        again.say("done")
        assert fleet.client.wait(held, 5) == "done"
        fleet.wait_for_state(retried, "DEAD")
        until(lambda: fleet.client.queue_stats("default").succeeded == JOBS + 2)
        assert int(raw.info("memory")["used_memory"]) < limit
        fleet.client.wait(fleet.client.schedule_job("record"), 5)
        stats = fleet.client.queue_stats("default")
        assert (stats.recovered, stats.stale, stats.dead, stats.ready, stats.running) == (1, 0, 1, 0, 0)
        assert fleet.client.get_job_status(held).attempts == 2
        assert "leases can't be renewed" not in worker.output()
        assert fleet.stop(worker) == 0
        fleet.check()


def test_a_full_server_lets_jobs_be_cancelled_and_waited_for(own_server: OwnServer) -> None:
    server = own_server()
    raw = redis.Redis.from_url(server.url)
    with raw, Fleet(server.url) as fleet:
        fleet.forker.worker(lease_s=LEASE_S, concurrency=5)
        running = fleet.client.schedule_job("gated", args=["held"])
        fleet.stand.next("held")
        waiting = fleet.client.schedule_job("record", delay=60)
        raw.config_set("maxmemory", 1)
        assert_refused(fleet)
        assert fleet.client.cancel_job(waiting)
        assert fleet.client.cancel_job(running)
        fleet.stand.next("held cancelled")
        fleet.wait_for_state(running, "CANCELLED")
        with pytest.raises(TimeoutError):
            fleet.client.wait(fleet_job(fleet, raw), 0.2)
        fleet.check()


def fleet_job(fleet: Fleet, raw: Any) -> str:
    """Give a job that waits, made while there was room."""
    raw.config_set("maxmemory", 0)
    job = fleet.client.schedule_job("record", delay=60)
    raw.config_set("maxmemory", 1)
    return job
