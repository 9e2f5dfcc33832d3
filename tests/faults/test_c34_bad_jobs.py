"""C34: jobs that cannot be decoded, found, run or reported each end once, and the worker goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from rzsched import JobFailed
from rzsched.answers import DeadJob
from tests.conftest import Process
from tests.fleet import Fleet, until

REASON_BYTES = 16_384
KINDS = ["import", "unspeakable", "huge", "wide", "exit", "interrupt", "generator_exit", "cancelled", "demanding"]


def graves(fleet: Fleet) -> list[DeadJob]:
    return fleet.client.list_dead("default")


def run_good_job(fleet: Fleet, worker: Process) -> None:
    """Have a good job run after a bad one, by the same process."""
    for task in ("about", "about_plain"):
        told = fleet.client.wait(fleet.client.schedule_job(task), 10)
        assert told["state"]["pid"] == worker.pid


def bury_one(fleet: Fleet, worker: Process, act: Callable[[], object]) -> DeadJob:
    """Have one bad job end; give its grave."""
    known = {grave.entry for grave in graves(fleet)}
    lines = len(worker.output().splitlines())
    act()
    until(lambda: len(graves(fleet)) > len(known))
    run_good_job(fleet, worker)
    (grave,) = [each for each in graves(fleet) if each.entry not in known]
    assert 0 < len(grave.error.encode()) < REASON_BYTES
    assert len(worker.output().splitlines()) - lines < 10
    return grave


def add_entry(fleet: Fleet, *fields: bytes) -> None:
    """Add an entry as somebody with redis-cli would."""
    fleet.redis.execute_command("XADD", fleet.place.ready[5], "*", *fields)


def test_each_bad_job_ends_dead_once_and_the_same_worker_runs_on(redis_url: str) -> None:
    with Fleet(redis_url) as fleet:
        worker = fleet.worker("--unknown-grace", "0", "-c", "3")

        garbage = bury_one(fleet, worker, lambda: add_entry(fleet, b"\xff\x00", b"\x00\xff"))
        assert garbage.raw == {b"\xff\x00": b"\x00\xff"}, "the bytes are kept as they came"
        orphan = bury_one(fleet, worker, lambda: add_entry(fleet, b"id", b"default.0.nothing"))
        assert orphan.raw == {b"id": b"default.0.nothing"}

        unknown = bury_one(fleet, worker, lambda: fleet.client.schedule_job("no.such"))
        assert "no.such" in unknown.error
        assert fleet.client.get_job_status(unknown.id).attempts == 0

        def undecodable() -> None:
            job = fleet.client.schedule_job("echo", delay=0.2)
            fleet.redis.hset(fleet.place.job(job), "payload", b"\xc1\xff\x00")

        broken = bury_one(fleet, worker, undecodable)
        assert fleet.redis.hget(fleet.place.job(broken.id), "payload") == b"\xc1\xff\x00"

        def nonsense() -> None:
            job = fleet.client.schedule_job("about", delay=0.2)
            fleet.redis.hset(fleet.place.job(job), mapping={"timeout_ms": b"\xff", "backoff": "never"})

        bury_one(fleet, worker, nonsense)
        for task in ("raises", "raises_plain"):
            for kind in KINDS:
                grave = bury_one(fleet, worker, lambda: fleet.client.schedule_job(task, args=[kind]))  # noqa: B023
                assert fleet.client.get_job_status(grave.id).attempts == 1, kind
        wrong = bury_one(fleet, worker, lambda: fleet.client.schedule_job("echo", args=[1, 2, 3], max_retries=0))
        assert "TypeError" in wrong.error

        assert len(graves(fleet)) == 6 + 2 * len(KINDS)
        assert worker.poll() is None
        check_list_commands(fleet)
        fleet.check()
        assert fleet.stop(worker) == 0


def check_list_commands(fleet: Fleet) -> None:
    for words in (("dead", "list", "default"), ("jobs", "default", "--state", "DEAD"), ("queues",), ("workers",)):
        done = subprocess.run([sys.executable, "-m", "rzsched", "--url", fleet.url, *words, "--json"],
                              capture_output=True, text=True, timeout=30, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)


def test_an_unknown_task_waits_for_a_worker_that_knows_it(redis_url: str, tmp_path: object) -> None:
    """A rolling deploy: the old worker hands the job on, no attempt used, until the new one is there."""
    with Fleet(redis_url) as fleet:
        old = fleet.start("worker", "--unknown-grace", "60", "bench.tasks:app")
        fleet.wait_for_line(old, "worker started")
        job = fleet.client.schedule_job("echo", args=["known"])
        fleet.wait_for_line(old, "unknown task echo")
        until(lambda: fleet.state(job) == "PENDING")
        assert fleet.client.get_job_status(job).attempts == 0
        fleet.stop(old)
        fleet.worker()
        assert fleet.client.wait(job, 10) == "known"
        assert fleet.client.get_job_status(job).attempts == 1
        fleet.check()


@pytest.mark.parametrize("kind", ["huge", "unspeakable"])
def test_a_waiter_is_told_of_a_failure_that_can_hardly_be_told(redis_url: str, kind: str) -> None:
    with Fleet(redis_url) as fleet:
        fleet.worker()
        job = fleet.client.schedule_job("raises", args=[kind])
        with pytest.raises(JobFailed) as caught:
            fleet.client.wait(job, 10)
        assert len(str(caught.value)) < REASON_BYTES
        fleet.check()
