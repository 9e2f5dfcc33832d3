"""Servers that forget or refuse: workers go on by themselves, producers get a clear error, no job is lost."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from typing import Any

import pytest
import redis

from rzsched import Client, JobSpec
from rzsched.errors import ConnectionFailed
from tests.conftest import OwnServer
from tests.fleet import Fleet, until
from tests.producer import Front, port_of
from tests.states import assert_one_place

REFUSALS = {
    "LOADING Redis is loading the dataset in memory": "LOADING|loading",
    "READONLY You can't write against a read only replica.": "read only",
    "TRYAGAIN Multiple keys request during rehashing of slot": "rehashing",
    "CLUSTERDOWN The cluster is down": "cluster is down",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": "Link with MASTER is down",
    "NOREPLICAS Not enough good replicas to write.": "min-replicas-to-write",
    "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.": "disk",
    # As a script of Redis 6.2 tells it.
    "ERR Error running script (call to f_1): @user_script:12: -MISCONF Redis is configured to save": "disk",
    "ERR Error running script (call to f_1): @user_script:12: -NOREPLICAS Not enough good": "min-replicas-to-write",
}


@pytest.mark.parametrize("reply", REFUSALS)
def test_a_refusal_that_passes_is_sat_out_and_then_told(redis_url: str, reply: str) -> None:
    with Front(port_of(redis_url)) as front, Client(front.url) as client:
        job = client.schedule_job("t")
        fine_at = time.monotonic() + 0.3
        refusal = f"-{reply}\r\n".encode()
        front.refuse = lambda command: refusal if time.monotonic() < fine_at else None
        assert client.schedule_job("t", idempotency_key="k").created
        fine_at = time.monotonic() + 0.3
        assert client.cancel_job(job), "surely not run, so it may be sent again"
        front.refuse = lambda command: refusal
        with pytest.raises(ConnectionFailed, match=REFUSALS[reply]):
            client.schedule_job("t")
    assert_one_place(redis_url)


def test_workers_and_schedulers_wait_while_the_server_loads_its_data(redis_url: str) -> None:
    is_loading = True
    with Front(port_of(redis_url)) as front, Fleet(redis_url) as fleet:
        loading = b"-LOADING Redis is loading the dataset in memory\r\n"
        front.refuse = lambda command: loading if is_loading else None
        worker = fleet.worker("--no-scheduler", url=front.url, wait=False)
        scheduler = fleet.start("scheduler", url=front.url)
        once = fleet.start("enqueue", "record", url=front.url)
        fleet.wait_for_line(worker, "waiting for the server: redis at")
        fleet.wait_for_line(scheduler, "scheduler waits for the server")
        assert once.wait(10) == 4 and "can't serve yet" in once.output()
        job = fleet.client.schedule_job("record", delay=1)
        is_loading = False
        fleet.client.wait(job, 5)
        assert [fleet.stop(process) for process in (worker, scheduler)] == [0, 0]


def test_a_disk_that_takes_nothing_stops_nobody_for_good(own_server: OwnServer) -> None:
    server = own_server()
    raw = redis.Redis.from_url(server.url)
    with raw, Fleet(server.url) as fleet:
        worker = fleet.worker()
        job = fleet.client.schedule_job("gated", args=["held"])
        held = fleet.stand.next("held")
        raw.config_set("save", "3600 1")
        shutil.rmtree(server.dir)
        raw.bgsave()
        until(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "err")
        with pytest.raises(ConnectionFailed, match=r"disk and refuses writes \(MISCONF\)"):
            fleet.client.schedule_job("record")
        held.say("done")
        fleet.wait_for_line(worker, "the server is away")
        server.dir.mkdir()
        raw.config_set("stop-writes-on-bgsave-error", "no")
        assert fleet.client.wait(job, 5) == "done"
        assert fleet.client.get_job_status(job).attempts == 1
        assert len(fleet.ledger()) == 1
        fleet.check()


def test_a_server_that_comes_back_with_an_empty_memory(own_server: OwnServer) -> None:
    server = own_server()
    said = {"RZSCHED_TEST_CRONS": json.dumps([{"every": 1, "id": "ticks"}])}
    with Fleet(server.url, "tests.crons_app:app") as fleet:
        worker = fleet.worker(env=said)
        until(fleet.ledger)
        before = max(each["time"] for each in fleet.ledger())
        server.kill()
        server.restart()
        fleet.wait_for_line(worker, "the server has lost its memory")
        until(lambda: [each for each in fleet.ledger() if each["time"] > before + 1.5], "it fires again")
        assert [cron.id for cron in fleet.client.list_crons()] == ["ticks"]
        assert [queue.queue for queue in fleet.client.queues()] == ["default"]
        fleet.client.wait(fleet.client.schedule_job("tick"), 5)
        assert fleet.stop(worker) == 0
        fleet.check()


def test_a_schedule_that_was_removed_does_not_come_back_with_the_connection(own_server: OwnServer) -> None:
    """A newer version of the App may have removed it: only a lost memory brings schedules back."""
    server = own_server()
    said = {"RZSCHED_TEST_CRONS": json.dumps([{"every": 3600, "id": "old"}, {"every": 3600, "id": "kept"}])}
    raw = redis.Redis.from_url(server.url)
    with raw, Fleet(server.url, "tests.crons_app:app") as fleet:
        worker = fleet.worker(env=said)
        fleet.client.remove_cron("old")
        # What is not connected yet has nothing to lose.
        until(lambda: any(client["cmd"] == "xreadgroup" for client in raw.client_list()))
        raw.client_kill_filter(skipme=True)
        fleet.wait_for_line(worker, "the server is back")
        fleet.client.wait(fleet.client.schedule_job("tick"), 5)
        assert [cron.id for cron in fleet.client.list_crons()] == ["kept"]


def test_groups_and_scripts_that_are_gone_are_made_again(redis_url: str, raw: Any) -> None:
    with Fleet(redis_url) as fleet:
        fleet.worker()
        for _ in range(3):
            for stream in fleet.place.ready:
                raw.xgroup_destroy(stream, "workers")
            raw.script_flush()
            fleet.client.wait(fleet.client.schedule_job("record"), 5)
            fleet.client.wait(fleet.client.schedule_job("record", delay=0.1), 5)
            raw.delete(*fleet.place.ready)
            fleet.client.wait(fleet.client.schedule_job("record"), 5)
        assert set(Counter(each["job"] for each in fleet.ledger()).values()) == {1}
        fleet.check()


def test_connections_killed_again_and_again_under_load(redis_url: str, raw: Any) -> None:
    with Fleet(redis_url) as fleet:
        for _ in range(2):
            fleet.forker.worker(concurrency=10, lease_s=5)
        until(lambda: len(fleet.client.workers()) == 2)
        jobs: list[str] = []
        for burst in range(20):
            jobs += fleet.client.schedule_many(JobSpec("record", delay=(index % 5) / 10) for index in range(50))
            raw.client_kill_filter(skipme=True)
            while len(fleet.ledger()) < burst * 40:
                raw.ping()
        until(lambda: len(fleet.ledger()) >= len(jobs))
        until(lambda: fleet.pending() == 0)
        assert Counter(each["job"] for each in fleet.ledger()) == dict.fromkeys(jobs, 1)
        stats = fleet.client.queue_stats("default")
        assert (stats.succeeded, stats.stale, stats.recovered) == (len(jobs), 0, 0)
        fleet.check()
