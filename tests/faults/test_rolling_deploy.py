"""A rolling deploy: old and new code side by side under load, with other scripts, tasks and schedules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from rzsched import Client, JobId
from tests.conftest import ROOT, Process
from tests.fleet import Fleet, until

WORKERS = 2
OLD, NEW = "tests.deploy_v1:app", "tests.deploy_v2:app"
OPTIONS = ("-c", "5", "--lease", "2", "--shutdown-timeout", "1")


class Load(threading.Thread):
    """A producer that goes on through the whole deploy; `tasks` is what it schedules by now."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.tasks = ["steady", "send_mail"]
        self.jobs: list[JobId] = []
        self.ending = threading.Event()

    def run(self) -> None:
        with Client(self._url) as client:
            while not self.ending.wait(0.02):
                for number, task in enumerate(self.tasks):
                    delay = 0.5 if len(self.jobs) % 3 == number else None
                    self.jobs.append(client.schedule_job(task, delay=delay))


@pytest.fixture
def new_release(tmp_path: Path) -> Path:
    """Copy the package, and change each script of the copy by a comment: so each has another name on the server."""
    release = tmp_path / "release"
    for folder in ("rzsched", "lua"):
        shutil.copytree(ROOT / folder, release / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (release / "lua").glob("*.lua"):
        path.write_text(path.read_text() + "-- the next release\n")
    return release


def start_new(fleet: Fleet, release: Path) -> Process:
    worker = fleet.start("worker", *OPTIONS, NEW, cwd=release,
                         env={"PYTHONPATH": os.pathsep.join((str(release), str(ROOT)))})  # fmt: skip
    fleet.wait_for_line(worker, "worker started")
    return worker


def shas_of(release: Path) -> list[str]:
    """Name the scripts of a release that every worker uses, as the server does."""
    code = "from rzsched.scripts import script; print(script('finish').sha, script('renew').sha)"
    done = subprocess.run([sys.executable, "-c", code], cwd=release, env={**os.environ, "PYTHONPATH": str(release)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    return done.stdout.split()


def ticks(fleet: Fleet, version: str) -> list[float]:
    told = [each["event"] for each in fleet.ledger(None)]
    return [float(event.split()[2]) for event in told if event.startswith(f"tick {version} ")]


def test_nothing_is_lost_or_dead_and_no_attempt_is_spent(redis_url: str, new_release: Path) -> None:
    with Fleet(redis_url, OLD) as fleet:
        old = [fleet.worker(*OPTIONS) for _ in range(WORKERS)]
        load = Load(redis_url)
        load.start()
        until(lambda: len(ticks(fleet, "v1")) >= 2)
        new = []
        for leaving in old:
            # Longer than a worker that stops may take: it is handed back, and runs again elsewhere.
            slow = fleet.client.schedule_job("steady", args=[2.5])
            new.append(start_new(fleet, new_release))
            load.tasks = ["steady", "send_mail", "mail.send", "added"]  # the new web servers are up
            until(lambda: fleet.ledger("run", slow))  # noqa: B023 - it runs now
            assert fleet.stop(leaving) == 0
            load.jobs.append(slow)
        until(lambda: len(ticks(fleet, "v2")) >= 2)
        load.ending.set()
        load.join(10)
        for job in load.jobs:
            fleet.client.wait(job, 10)

        statuses = [fleet.client.get_job_status(job) for job in load.jobs]
        assert Counter((status.state, status.attempts) for status in statuses) == {("SUCCEEDED", 1): len(load.jobs)}
        assert Counter(each["job"] for each in fleet.ledger("end")) == dict.fromkeys(load.jobs, 1)
        stats = fleet.client.queue_stats("default")
        assert (stats.dead, stats.recovered, stats.stale, stats.failed) == (0, 0, 0, 0)

        first, then = ticks(fleet, "v1"), ticks(fleet, "v2")
        assert len({*first, *then}) == len(first) + len(then), "each instant once"
        assert all(instant % 2 == 0 for instant in sorted({*first, *then})[-2:])
        shas = {*shas_of(ROOT), *shas_of(new_release)}
        assert len(shas) == 4 and all(fleet.redis.script_exists(*shas)), "both releases have used their own scripts"
        for worker in new:
            assert fleet.stop(worker) == 0
        fleet.check()
