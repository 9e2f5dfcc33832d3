"""C28: the clocks of hosts differ, and step; only the server's clock counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import redis

from rzsched import App, Client, Context, keys
from tests.conftest import ROOT, Process
from tests.fleet import Fleet, until

MODULE = "tests.faults.test_c28_clocks"
QUEUES = ("default", "other")
DELAY_S = 3.0
LATE_S = 1.5
LEASE_S = 2.0
LONG_S = 6.0
TICK_S = 2
TICKS_FOR_S = 12
HOUR_S = 3600.0

app = App()


# ---- what the processes run


@cache
def server() -> Any:
    return redis.Redis.from_url(os.environ["RZSCHED_URL"])


def time_of(connection: Any) -> float:
    """Give the server's time."""
    seconds, micros = connection.time()
    return float(seconds) + float(micros) / 1e6


def write_ledger(ctx: Context) -> None:
    at, host = time_of(server()), time.time()
    nominal = None if ctx.scheduled_for is None else ctx.scheduled_for.timestamp()
    told = {"event": ctx.task, "job": ctx.job_id, "at": at, "off": host - at, "nominal": nominal}
    with open(os.environ["RZSCHED_TEST_LEDGER"], "a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(told) + "\n")


@app.task
def soon(ctx: Context) -> None:
    write_ledger(ctx)


@app.task
def long(ctx: Context) -> None:
    write_ledger(ctx)
    time.sleep(LONG_S)


@app.cron(f"*/{TICK_S} * * * * *", id="tick")
@app.task
def tick(ctx: Context) -> None:
    write_ledger(ctx)


def enqueue() -> None:
    """Enqueue the jobs; print when each was, by the server's clock, and how far off the own one is."""
    with Client(os.environ["RZSCHED_URL"]) as client:
        for number in range(21):
            before = time_of(server())
            off = time.time() - before
            if number == 20:
                job = client.schedule_job("long")
            else:
                job = client.schedule_job("soon", delay=DELAY_S, queue=QUEUES[number % 2])
            print(json.dumps({"job": job, "before": before, "after": time_of(server()), "off": off}))


# ---- the test


class Clock:
    """The clock of the processes that run in its environment."""

    def __init__(self, path: Path, off_s: float) -> None:
        self._path = path
        self.off_s = off_s
        self.step(0)
        self.environment = {
            "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "shifted"), str(ROOT))),
            "RZSCHED_TEST_CLOCK": str(path),
        }

    def step(self, by_s: float) -> None:
        self.off_s += by_s
        new = self._path.with_suffix(".step")
        new.write_text(str(self.off_s))
        new.replace(self._path)

    def prove(self, process: Process) -> None:
        """Have a process say what it reads from its clocks."""
        told = Path(f"{self._path}.told")
        told.unlink(missing_ok=True)
        process.send_signal(signal.SIGUSR1)
        until(told.exists, "what the clocks say")
        assert all(abs(float(off) - self.off_s) < 0.5 for off in told.read_text().split()), told.read_text()


def enqueue_at(clock: Clock, url: str) -> list[dict[str, Any]]:
    """Have a client process with that clock enqueue the jobs; the last is the long one."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {MODULE} as it; it.enqueue()"], cwd=ROOT, timeout=30, check=True,
        stdout=subprocess.PIPE, env={**os.environ, **clock.environment, "RZSCHED_URL": url},
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def owners(fleet: Fleet, schedulers: dict[str, Process]) -> list[str]:
    """Give the names of the schedulers that serve the queues; [] while one has both, or none has one."""
    ids = {name: fleet.wait_for_line(each, "scheduler started").rpartition("id=")[2]
           for name, each in schedulers.items()}  # fmt: skip
    holders = [fleet.redis.get(keys.partition("rz", queue, 0).lease) for queue in QUEUES]
    found = [name for holder in holders for name, id in ids.items() if holder and holder.decode() == id]
    return found if len(set(found)) == len(QUEUES) else []


def test_only_the_clock_of_the_server_counts(redis_url: str) -> None:
    """Two queues, so that each of the two schedulers has one to serve."""
    with Fleet(redis_url, f"{MODULE}:app") as fleet:
        clocks = {
            name: Clock(fleet.folder / f"clock-{name}", off_s)
            for name, off_s in {"client": 300, "slow": -300, "fast": 300, "worker": -120}.items()
        }
        words = [word for queue in QUEUES for word in ("-q", queue)]
        worker = fleet.worker("--no-scheduler", "--lease", str(LEASE_S), *words, env=clocks["worker"].environment,
                              wait=False)  # fmt: skip
        schedulers = {name: fleet.start("scheduler", env=clocks[name].environment) for name in ("slow", "fast")}
        fleet.wait_for_line(worker, "worker started")
        stepped, _ = until(lambda: owners(fleet, schedulers), "each scheduler serves a queue")
        for name, process in {**schedulers, "worker": worker}.items():
            clocks[name].prove(process)

        def ticks() -> list[float]:
            return [each["nominal"] for each in fleet.ledger("tick")]

        until(ticks, "the first tick")
        first = ticks()[0]
        jobs = enqueue_at(clocks["client"], redis_url)
        assert all(abs(job["off"] - clocks["client"].off_s) < 0.5 for job in jobs)

        until(lambda: time_of(fleet.redis) > first + TICKS_FOR_S / 2)
        clocks[stepped].step(-HOUR_S)  # the one that fires the ticks
        clocks[stepped].prove(schedulers[stepped])
        until(lambda: ticks()[-1] >= first + TICKS_FOR_S, "ticks go on after the step", limit_s=TICKS_FOR_S)
        assert owners(fleet, schedulers)[0] == stepped, "another one fired them"
        ran = [nominal for nominal in ticks() if nominal < first + TICKS_FOR_S]
        assert len(set(ran)) == len(ran) and all(nominal % TICK_S == 0 for nominal in ran), ran
        assert abs(len(ran) - TICKS_FOR_S / TICK_S) <= 1, ran
        lags = [each["at"] - each["nominal"] for each in fleet.ledger("tick")]
        assert min(lags) >= 0 and max(lags) < LATE_S, lags

        *soon_jobs, long_job = jobs
        for job in soon_jobs:
            runs = fleet.ledger("soon", job["job"])
            assert len(runs) == 1, (job, runs)
            at = runs[0]["at"] - DELAY_S
            assert job["before"] - 0.002 < at < job["after"] + LATE_S, (job, runs)  # due times are whole milliseconds
            created_at = fleet.client.get_job_status(job["job"]).created_at
            assert created_at is not None and abs(created_at.timestamp() - job["before"]) < 1.5, created_at
        fleet.wait_for_state(long_job["job"], "SUCCEEDED")
        assert len(fleet.ledger("long", long_job["job"])) == 1
        assert all(abs(run["off"] - clocks["worker"].off_s) < 0.5 for run in fleet.ledger("soon"))
        for queue in QUEUES:
            stats = fleet.client.queue_stats(queue)
            assert (stats.recovered, stats.stale, stats.dead) == (0, 0, 0), queue
        for process in (worker, *schedulers.values()):
            assert fleet.stop(process) == 0
        fleet.check()
