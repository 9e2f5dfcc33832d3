"""The processes of a chaos run: started, killed, frozen and started again, each by its own id."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bench.fleet import ROOT

STOP_TIMEOUT_S = 30.0


class Slot:
    """A place for one process, which is started again as a process manager would."""

    def __init__(self, name: str, role: str, words: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.role = role
        self._words = words
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        self.log = folder / f"{name}.log"
        self._begins_at = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._begins_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-m", *self._words], cwd=ROOT, env=self._environment,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True)  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def children(self) -> list[int]:
        """Give the pids of a supervisor's live workers, oldest first."""
        pids = [int(pid) for pid in re.findall(r"worker process started .*pid=(\d+)", self._said())]
        return [pid for pid in pids if is_child(pid, self.pid)]

    @property
    def has_begun(self) -> bool:
        return " started " in self._said()

    def is_farewell(self, code: int) -> bool:
        """Say whether it may end so when told to: one that is still on its way up has no farewell to say."""
        return code == 0 or (code == -signal.SIGTERM and not self.has_begun)

    def _said(self) -> str:
        """Read what the process has logged."""
        with self.log.open("rb") as log:
            log.seek(self._begins_at)
            return log.read().decode("utf-8", "replace")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def terminate(self) -> None:
        """Tell it to end in order."""
        assert self._process is not None
        self._process.terminate()

    def wait(self, limit_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until it has ended as it was told to; give its exit code. It is killed after `limit_s` seconds."""
        assert self._process is not None
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            code = -signal.SIGKILL
        self._process = None
        return code

    def close(self) -> None:
        """End it and its children, whatever state they are in."""
        if self._process is None:
            return
        pids = self.children if self.role == "supervisor" else []
        for pid in (*pids, self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None


def is_child(pid: int, parent: int) -> bool:
    """Say whether a process lives and has that parent."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return words[0] != "Z" and int(words[1]) == parent


def has_ended(pid: int) -> bool:
    """Say whether a process that is not our child has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
