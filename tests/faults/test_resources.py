"""Processes that run out of what the machine gives: file descriptors, and the disk under the append-only file."""

from __future__ import annotations

import os
import resource
import signal
import time

import pytest

from rzsched import RzschedError
from tests.conftest import OwnServer
from tests.fleet import Fleet, is_alive, until

LEASE_S = 1.0


def limit_descriptors(pid: int, count: int | None = None) -> None:
    """Let a process have no new descriptor whose number is that or higher; None: as many as it may."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard if count is None else count, hard))


def test_a_worker_without_file_descriptors_goes_on_when_it_has_some_again(redis_url: str) -> None:
    with Fleet(redis_url) as fleet:
        worker = fleet.worker("--lease", str(LEASE_S), "-c", "5")
        job = fleet.client.schedule_job("gated", args=["before"])
        fleet.stand.next("before")
        limit_descriptors(worker.pid, 3)
        fleet.redis.client_kill_filter(_type="normal", skipme=True)
        fleet.redis.client_kill_filter(_type="pubsub")
        fleet.wait_for_line(worker, "Too many open files")
        waiting = [fleet.client.schedule_job("record") for _ in range(20)]
        fleet.wait_for_line(worker, "no renewal for a whole lease: stopping")
        until(lambda: fleet.client.workers() == [], "its heartbeat has run out")
        assert is_alive(worker.pid)
        limit_descriptors(worker.pid)
        fleet.stand.next("before").say("after")
        assert fleet.client.wait(job, 10) == "after"
        for each in waiting:
            fleet.client.wait(each, 10)
        assert fleet.stop(worker) == 0
        fleet.check()


def test_a_supervisor_without_file_descriptors_starts_a_child_when_it_has_some_again(redis_url: str) -> None:
    with Fleet(redis_url) as fleet:
        supervisor = fleet.worker("-w", "2", "--lease", str(LEASE_S), wait=False)
        first, second = fleet.children(supervisor, 2)
        limit_descriptors(supervisor.pid, 3)
        os.kill(first, signal.SIGKILL)
        fleet.wait_for_line(supervisor, "no worker process can be started: [Errno 24] Too many open files")
        assert fleet.client.wait(fleet.client.schedule_job("echo", args=["by the other"]), 10) == "by the other"
        assert is_alive(supervisor.pid) and is_alive(second)
        limit_descriptors(supervisor.pid)
        fleet.wait_for_line(supervisor, "worker started", 3)
        until(lambda: len(fleet.client.workers()) == 2)
        assert fleet.stop(supervisor) == 0
        fleet.check()


def fill_disk(pid: int, path: str) -> None:
    """Let a process write no byte more to a file: its next write finds what it finds on a full disk, no room."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (os.stat(path).st_size, resource.RLIM_INFINITY))


def test_workers_wait_while_the_disk_under_the_append_only_file_is_full(own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
    with Fleet(server.url) as fleet:
        worker = fleet.worker("--lease", str(LEASE_S), "-c", "5")
        running = fleet.client.schedule_job("gated_plain", args=["running"])
        visit = fleet.stand.next("running")
        waiting = [fleet.client.schedule_job("record", delay=0.3) for _ in range(20)]
        files = [path for path in server.dir.rglob("*.aof")]
        fill_disk(server.pid, str(max(files, key=lambda path: path.stat().st_mtime)))
        until(lambda: fleet.redis.info("persistence")["aof_last_write_status"] == "err")
        began = time.monotonic()
        with pytest.raises(RzschedError, match=r"disk|MISCONF"):
            fleet.client.schedule_job("record")
        assert time.monotonic() - began < 3, "a producer hears of it soon"
        visit.say("ended while the disk was full")
        until(lambda: "MISCONF" in worker.output(), "the worker says why it waits")
        assert worker.poll() is None
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for job in waiting:
            fleet.client.wait(job, 15)
        until(lambda: fleet.state(running) == "SUCCEEDED" or "running" in fleet.stand.waiting)
        if "running" in fleet.stand.waiting:  # its lease could not be renewed in time: it runs once more
            fleet.stand.next("running").say()
        fleet.wait_for_state(running, "SUCCEEDED")
        assert fleet.stop(worker) == 0
        fleet.check()
