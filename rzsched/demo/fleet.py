"""The demo's worker processes: started, frozen, killed and ended, each by its own id."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import rzsched
from rzsched.errors import RzschedError

CONCURRENCY = 20
LEASE_S = 2.0
_STOP_S = 8.0
_NAMES = "ABCDEFGH"


class DemoFailed(RzschedError):
    """The demo could not be played to its end; the message says why."""


@dataclass(slots=True, eq=False)
class WorkerProcess:
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def __str__(self) -> str:
        return f"worker {self.name}"

    def freeze(self) -> None:
        """Stop the process where it is, and return once it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise DemoFailed(f"{self} ended by itself: {self.last_words()}")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


class Fleet:
    """Workers of the demo's App on one server, which they learn from the environment: its URL may hold a password."""

    def __init__(self, folder: Path, url: str, namespace: str, books: Path) -> None:
        self._folder = folder
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("RZSCHED_")}
        self._env |= {"RZSCHED_URL": url, "RZSCHED_NAMESPACE": namespace, "RZSCHED_DEMO_BOOKS": str(books)}
        # The same code as this process has, wherever that was found.
        paths = [str(Path(rzsched.__file__).resolve().parents[1]), self._env.get("PYTHONPATH", "")]
        self._env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._all: list[WorkerProcess] = []

    def start(self) -> WorkerProcess:
        name = _NAMES[len(self._all)]
        log = self._folder / f"worker-{name}.log"
        command = [sys.executable, "-m", "rzsched", "worker", "rzsched.demo.app:app",
                   "--concurrency", str(CONCURRENCY), "--lease", str(LEASE_S)]  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       cwd=self._folder, env=self._env)  # fmt: skip
        worker = WorkerProcess(name, process, log)
        self._all.append(worker)
        return worker

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self._all if not worker.killed]

    def check(self) -> None:
        """Raise DemoFailed when a worker has ended that nobody killed."""
        for worker in self.alive:
            if worker.process.poll() is not None:
                code = worker.process.returncode
                raise DemoFailed(f"{worker} ended by itself, exit code {code}: {worker.last_words()}")

    def stop(self) -> list[WorkerProcess]:
        """Have the workers end in order; give those that do not."""
        for worker in self.alive:
            worker.process.terminate()
        self._wait(self.alive, _STOP_S)
        return [worker for worker in self.alive if worker.process.poll() is None]

    def close(self) -> None:
        """End what is left, at once; a frozen process dies of SIGKILL too."""
        for worker in self.alive:
            worker.process.kill()
        self._wait(self.alive, _STOP_S)

    @staticmethod
    def _wait(workers: Iterable[WorkerProcess], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        for worker in workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue  # `close` ends it
