"""The process that owns an embedded server. Run by path, standard library only, it starts at once.

Four locks in the data folder say who is there. All are `flock`s, so the kernel drops them with their holder,
however that died:

* `start.lock` (exclusive): held while somebody finds or starts the server (`embedded.py`).
* `users.lock` (shared): held by each user process. The watcher blocks on the exclusive lock, gets it when the
  last user is gone, and stops the server holding it: a newcomer waits, then starts a fresh one.
* `watcher.lock` (exclusive): taken by the starter and inherited by the watcher, so no instant lies between.
* `server.lock` (exclusive): taken by the watcher and inherited by the server, so it is free exactly when no
  server writes to the folder, even after the watcher was killed. A watcher that finds it taken adopts it.

`server.json` is written before the server starts, so a server that runs can always be found by the next user.
"""

from __future__ import annotations

import enum
import fcntl
import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass

LOG, STATE = "embedded.log", "server.json"
START_LOCK, USERS_LOCK, WATCHER_LOCK, SERVER_LOCK = "start.lock", "users.lock", "watcher.lock", "server.lock"
SHUTDOWN_S = 60.0
PORT_ATTEMPTS = 10
ENDED = "the server ended by itself"
CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir ./
logfile ""
daemonize no
appendonly yes
appendfsync everysec
aof-load-truncated yes
save ""
maxmemory-policy noeviction
"""


class Answer(enum.Enum):
    READY = "ready"
    BUSY = "busy"  # alive, but loading its data or inside a long script
    NONE = "none"


@dataclass(frozen=True)
class ServerState:
    """What `server.json` holds."""

    pid: int  # 0 until the server has been started
    port: int
    password: str

    def write(self, folder: str) -> None:
        """Replace the file in one step, readable by its owner only."""
        path = os.path.join(folder, STATE)
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
        os.replace(path + ".new", path)


def read_state(folder: str) -> ServerState | None:
    """Return what the file says, or None where it is missing or makes no sense."""
    try:
        with open(os.path.join(folder, STATE), encoding="utf-8") as file:
            found = json.load(file)
        state = ServerState(int(found["pid"]), int(found["port"]), str(found["password"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    usable = 0 < state.port < 65536 and state.password.isalnum() and state.password.isascii()
    return state if usable else None


def lock_file(path: str, operation: int) -> int | None:
    """Open and lock `path`; None where `operation` has LOCK_NB and another holds it.

    A file replaced while we waited (its folder was deleted) guards nothing, so the lock is taken anew.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, operation)
            if is_same_file(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def is_same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def ask(state: ServerState, *words: str, timeout_s: float = 1.0) -> str:
    """Send one command after AUTH and return its reply line; "" where the server is not there or not ours."""
    request = b"".join(_encode(command) for command in (("AUTH", state.password), words))
    try:
        with socket.create_connection(("127.0.0.1", state.port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(request)
            with connection.makefile("rb") as replies:
                if replies.readline(512) != b"+OK\r\n":
                    return ""
                return replies.readline(512).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _encode(words: tuple[str, ...]) -> bytes:
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    return f"*{len(words)}\r\n{''.join(parts)}".encode()


def probe(state: ServerState | None) -> Answer:
    """Say whether the server of `state` answers to its password."""
    reply = ask(state, "PING") if state else ""
    if reply == "+PONG":
        return Answer.READY
    return Answer.BUSY if reply.startswith(("-LOADING", "-BUSY")) else Answer.NONE


def free_port() -> int:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return int(probe_socket.getsockname()[1])


def log(message: str) -> None:
    print(f"{os.getpid()}:watcher {time.strftime('%d %b %Y %H:%M:%S')} {message}", flush=True)


class Watcher:
    """Owns the server of the current folder until it, or the last user, is gone."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        self._announce_lock(USERS_LOCK)
        previous = read_state(".")
        for _ in range(PORT_ATTEMPTS):
            log_start = os.fstat(1).st_size
            self._start_or_adopt(previous)
            self._announce_lock(SERVER_LOCK)
            if self._events.get() == USERS_LOCK:
                self._stop()
                return
            if self._child is None:
                continue
            if not _port_was_taken(log_start):
                log(ENDED)
                return
            previous = None

    def _announce_lock(self, name: str) -> None:
        """Put `name` into the events once nobody holds that lock; `users.lock` is then kept to the end."""
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        threading.Thread(target=self._wait_for, args=(fd, name), daemon=True).start()

    def _wait_for(self, fd: int, name: str) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        if name == SERVER_LOCK:
            os.close(fd)
        self._events.put(name)

    def _start_or_adopt(self, previous: ServerState | None) -> None:
        lock = lock_file(SERVER_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            log("adopting the server that runs here")
            self._child = None
            return
        # Last time's port and password first: clients that outlived a crashed server find the new one.
        port, password = (
            (previous.port, previous.password) if previous else (free_port(), secrets.token_hex(24))
        )
        ServerState(0, port, password).write(".")
        self._child = _spawn(self._binary, CONFIG.format(port=port, password=password), lock)
        ServerState(self._child.pid, port, password).write(".")
        os.close(lock)

    def _stop(self) -> None:
        log("no user left: stopping the server")
        if self._child is not None:
            self._child.terminate()
        elif state := read_state("."):
            ask(state, "SHUTDOWN", timeout_s=SHUTDOWN_S)
        try:
            self._events.get(timeout=SHUTDOWN_S)
        except queue.Empty:
            log(f"the server has not stopped within {SHUTDOWN_S:g} s")
            if self._child is not None:
                self._child.kill()
                self._events.get()


def _spawn(binary: str, config: str, lock: int) -> subprocess.Popen[bytes]:
    """Start the server; its configuration goes through stdin, so that the password is on no command line."""
    child = subprocess.Popen([binary, "-"], stdin=subprocess.PIPE, pass_fds=(lock,))
    assert child.stdin is not None
    try:
        child.stdin.write(config.encode())
        child.stdin.close()
    except BrokenPipeError:
        log("the server ended before it read its configuration")
    return child


def _port_was_taken(log_start: int) -> bool:
    with open(LOG, "rb") as file:
        file.seek(log_start)
        return b"Failed listening on" in file.read()


def main(folder: str, binary: str) -> None:
    """Detach from the starter, then watch. The watcher lock is an inherited descriptor, held to our end."""
    os.chdir(folder)
    os.umask(0o077)
    if os.fork():
        os._exit(0)
    try:
        Watcher(binary).run()
    except OSError as error:
        log(f"cannot start the server: {error}")
        os._exit(1)
    os._exit(0)  # threads may still be blocked in flock


if __name__ == "__main__":
    main(*sys.argv[1:])
