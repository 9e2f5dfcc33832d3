"""Worker and scheduler processes for tests, and where their handlers meet the test."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import redis

from rzsched import Client, keys
from rzsched.urls import cluster_addresses, is_cluster
from tests.conftest import ROOT, Process
from tests.servers import die_with_parent, end_group
from tests.states import assert_one_place

PATIENCE_S = 20.0
_POLL_S = 0.01


def until(condition: Callable[[], Any], what: str = "", limit_s: float = PATIENCE_S) -> Any:
    """Poll for what has no event; give the first true value."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it never came: {what or condition}"
        time.sleep(_POLL_S)
    return value


class Visit:
    """A handler at the stand: what it said, and the way to answer it."""

    def __init__(self, told: dict[str, Any], connection: socket.socket) -> None:
        self.told = told
        self._connection = connection

    def __getitem__(self, name: str) -> Any:
        return self.told[name]

    def say(self, word: str = "go") -> None:
        with self._connection, suppress(OSError):  # it may have been killed
            self._connection.sendall(word.encode() + b"\n")


class Stand:
    """A unix socket where handlers of worker processes meet the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stand"
        self._visits: list[Visit] = []
        self._connections: list[socket.socket] = []
        self._came = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(512)
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            connection.settimeout(PATIENCE_S)
            line = b""
            while not line.endswith(b"\n") and (data := connection.recv(4096)):
                line += data
            if not line:
                continue
            with self._came:
                self._visits.append(Visit(json.loads(line), connection))
                self._came.notify_all()

    def next(self, name: str | None = None, limit_s: float = PATIENCE_S) -> Visit:
        """Wait for the next handler, or for the one of that name."""
        with self._came:
            assert self._came.wait_for(lambda: self._find(name) is not None, limit_s), (
                f"{name!r} did not come; there are {[visit.told for visit in self._visits]}"
            )
            visit = self._find(name)
            assert visit is not None
            self._visits.remove(visit)
            return visit

    def _find(self, name: str | None) -> Visit | None:
        return next((visit for visit in self._visits if name in (None, visit["name"])), None)

    @property
    def waiting(self) -> list[str]:
        with self._came:
            return [visit["name"] for visit in self._visits]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        for connection in self._connections:
            connection.close()


class Forker:
    """A process that forks workers and schedulers: many start in the time of one."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked_workers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=output, cwd=ROOT, env=environment, start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only makes one system call
            )  # fmt: skip

    def worker(self, **settings: Any) -> int:
        return self._fork("worker", settings)

    def scheduler(self, **settings: Any) -> int:
        return self._fork("scheduler", settings)

    def _fork(self, role: str, settings: dict[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"role": role, "settings": settings}).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def kill(self, pid: int) -> None:
        """End one of its processes as a crash would."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        end_group(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def is_alive(pid: int) -> bool:
    """Say whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def plain_connection(url: str) -> Any:
    """Connect without rzsched; answers are bytes, by protocol 2."""
    if not is_cluster(url):
        return redis.Redis.from_url(url, protocol=2)
    host, _, port = cluster_addresses(url)[0].rpartition(":")
    return redis.RedisCluster(host, int(port), protocol=2)


class Fleet:
    """The processes of one test on one server."""

    def __init__(self, url: str, target: str = "tests.tasks_app:app") -> None:
        self.url = url
        self.target = target
        self.folder = Path(tempfile.mkdtemp(prefix="rz-"))
        self.stand = Stand(self.folder)
        self.client = Client(url)
        self.place = keys.partition("rz", "default", 0)
        self._ledger = self.folder / "ledger"
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.send_signal(signal.SIGCONT)
            end_group(process.pid)
        for process in self._started:
            process.wait()
            print(f"--- {process.args!r}: exit {process.returncode}\n{process.output()}")
        if "forker" in self.__dict__:
            self.forker.close()
            print(f"--- forked\n{self.forker.log.read_text(errors='replace')[-20_000:]}")
        self.stand.close()
        self.client.close()
        if "redis" in self.__dict__:
            self.redis.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- processes

    def start(self, *words: str, env: dict[str, str] | None = None, cwd: Path = ROOT,
              url: str | None = None) -> Process:
        """Start `rzsched words…`."""
        path = self.folder / f"process-{len(self._started)}.log"
        environment = {**self._environment(url), **(env or {})}
        with path.open("wb") as output:
            process = Process(
                [sys.executable, "-m", "rzsched", *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=cwd, env=environment, start_new_session=True, preexec_fn=die_with_parent(),
            )  # fmt: skip
        process.output_path = path
        self._started.append(process)
        return process

    def _environment(self, url: str | None = None) -> dict[str, str]:
        return {
            **os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "RZSCHED_URL": url or self.url,
            "RZSCHED_TEST_STAND": str(self.stand.path), "RZSCHED_TEST_LEDGER": str(self._ledger),
        }  # fmt: skip

    @cached_property
    def redis(self) -> Any:
        """A plain connection, where the URL names one server."""
        return plain_connection(self.url)

    @cached_property
    def forker(self) -> Forker:
        return Forker(self._environment(), self.folder / "forked.log")

    def worker(self, *options: str, env: dict[str, str] | None = None, url: str | None = None,
               wait: bool = True) -> Process:
        """Start a worker, and wait until it works unless told not to."""
        process = self.start("worker", *options, "--", self.target, env=env, url=url)
        if wait:
            self.wait_for_line(process, "worker started")
        return process

    def scheduler(self, *options: str) -> Process:
        process = self.start("scheduler", *options)
        self.wait_for_line(process, "scheduler started")
        return process

    def wait_for_line(self, process: Process, text: str, count: int = 1, limit_s: float = PATIENCE_S) -> str:
        """Wait for a line of output that holds `text`; give the last of `count`."""
        def lines() -> list[str]:
            found = [line for line in process.output().splitlines() if text in line]
            assert len(found) >= count or process.poll() is None, f"it ended first: {process.output()}"
            return found[:count] if len(found) >= count else []

        return str(until(lines, f"{text!r} in the output:\n{process.output()}", limit_s)[-1])

    def children(self, supervisor: Process, count: int) -> list[int]:
        """Give the pids of a supervisor's `count` youngest workers, once they work."""
        self.wait_for_line(supervisor, "worker started", count)
        return [int(pid) for pid in re.findall(r"worker process started .*pid=(\d+)", supervisor.output())][-count:]

    def stop(self, process: Process, limit_s: float = PATIENCE_S) -> int:
        process.send_signal(signal.SIGTERM)
        return process.wait(limit_s)

    def kill(self, process: Process) -> None:
        """End a process as a crash would; its group goes with it."""
        end_group(process.pid)
        process.wait()

    # ---- what happened

    def ledger(self, event: str | None = "run", job: str | None = None) -> list[dict[str, Any]]:
        """Give what the handlers wrote, oldest first; of every event where it is None."""
        if not self._ledger.exists():
            return []
        # A line that crosses a page of the file may be seen half written.
        found = [json.loads(line) for line in self._ledger.read_text().rpartition("\n")[0].splitlines()]
        return [each for each in found if event in (None, each["event"]) and job in (None, each["job"])]

    def state(self, job_id: str) -> str:
        return str(self.client.get_job_status(job_id).state)

    def wait_for_state(self, job_id: str, state: str, limit_s: float = PATIENCE_S) -> None:
        until(lambda: self.state(job_id) == state, f"{job_id} is {state}", limit_s)

    def pending(self, queue: str = "default") -> int:
        """Count the jobs that workers hold."""
        place = keys.partition("rz", queue, 0)
        return sum(self._pending(stream) for stream in place.ready)

    def _pending(self, stream: str) -> int:
        try:
            return int(self.redis.xpending(stream, keys.GROUP)["pending"])
        except redis.ResponseError:
            return 0

    def check(self) -> None:
        """Prove that every job is in exactly one place."""
        assert_one_place(self.client)
