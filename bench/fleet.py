"""Worker processes as a user starts them, with default settings."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.server import Server
from rzsched import keys

ROOT = Path(__file__).resolve().parent.parent
JOIN_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 40.0


class HasUrl(Protocol):
    """A server, or several of them behind one URL."""

    url: str
    folder: Path


@contextmanager
def workers(server: HasUrl, count: int = 1, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Start workers of `bench.tasks:app`; stop them in order at the end. Their log is shown when one fails."""
    command = [sys.executable, "-m", "rzsched", "worker", "bench.tasks:app"]
    surroundings = {**os.environ, "RZSCHED_URL": server.url, "RZSCHED_NAMESPACE": "rz", **(environment or {})}
    log_path = server.folder / "worker.log"
    with log_path.open("ab") as log:
        processes = [
            subprocess.Popen(command, cwd=ROOT, env=surroundings, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            for _ in range(count)
        ]
    try:
        yield
        codes = [_stop(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(codes):
        raise RuntimeError(f"a worker ended with {codes}; the log ends with:\n{log_path.read_text()[-2000:]}")


def _stop(process: "subprocess.Popen[bytes]") -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(STOP_TIMEOUT_S)


def wait_until_joined(server: Server, count: int = 1) -> None:
    """Wait until the workers have said that they are there."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while server.redis.zcard(keys.workers("rz")) < count:
        if time.monotonic() > deadline:
            log = (server.folder / "worker.log").read_text()
            raise RuntimeError(f"the workers do not come; their log ends with:\n{log[-2000:]}")
        time.sleep(0.02)
