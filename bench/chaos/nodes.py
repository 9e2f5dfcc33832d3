"""One server process that may be killed, stopped and started again on its port, with an append-only file."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.server import _free_port as free_port
from bench.server import binary_of

START_TIMEOUT_S = 30.0
PORT_ATTEMPTS = 5
DURABLE: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "always", "save": ""}
"""What is acknowledged is on the disk."""
COPIED: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "everysec", "save": "",
                             "repl-diskless-sync-delay": "0"}  # fmt: skip
"""What is acknowledged with `durability="replicated"` is in the memory of another node too."""
MOST_PORT = 55_000
"""A cluster's nodes talk to each other at their port and 10,000."""


class Node:
    """A server of a kind (`bench.server.KINDS`); `settings` are its options."""

    def __init__(self, kind: str, settings: Mapping[str, str]) -> None:
        self._binary = binary_of(kind)
        self._settings = dict(settings)
        self.folder = Path(tempfile.mkdtemp(prefix="rzsched-chaos-"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.redis: Any = None

    def start(self) -> "Node":
        for _ in range(PORT_ATTEMPTS):
            self.port = free_port()
            while self.port > MOST_PORT:
                self.port = free_port()
            if self._launch():
                return self
        raise RuntimeError(f"a server does not start; its log ends with:\n{self.log_tail()}")

    def set_at_once(self, name: str, value: str) -> None:
        """Configure it while it runs. Raises redis.TimeoutError, soon, where it stands still."""
        with redis.Redis(port=self.port, protocol=2, socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as link:
            link.config_set(name, value)

    def restart(self) -> None:
        """Start again on the same port, with what the folder holds."""
        if not self._launch():
            raise RuntimeError(f"a server does not start again; its log ends with:\n{self.log_tail()}")

    def _launch(self) -> bool:
        given = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder), **self._settings}
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen([self._binary, *self._config(), *words], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log)  # fmt: skip
        if self.redis is None:
            self.redis = redis.Redis(port=self.port, protocol=2, socket_timeout=5)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.redis.ping()  # it answers INFO while it still loads
                # Another process may have taken the port at the last moment: is it ours that answers?
                if int(self.redis.info("server")["process_id"]) == self._process.pid:
                    return True
                break
            except redis.RedisError:
                time.sleep(0.01)  # not yet listening, or loading
        self.kill()
        self.redis = None
        return False

    def _config(self) -> list[str]:
        """Give the configuration file to start with, where one is needed."""
        return []

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def is_primary(self) -> bool:
        """Say whether it serves now, and takes writes."""
        try:
            return self.is_up and self.redis.role()[0] == b"master"
        except redis.RedisError:
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_tail(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-2000:]

    def close(self) -> None:
        self.kill()
        if self.redis is not None:
            self.redis.close()
        shutil.rmtree(self.folder, ignore_errors=True)
