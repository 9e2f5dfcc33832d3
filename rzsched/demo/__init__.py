"""`rzsched demo`: the main job on real input, with nothing installed but this package, while workers die.

An embedded server, two workers and 200 customers to be billed. One worker is killed in the middle of its work, another
is paused until its lease is over and then goes on as if nothing had happened. In the end each customer has one invoice.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

from rzsched import embedded
from rzsched import embedded_watcher as watcher
from rzsched.client import Client
from rzsched.config import DEFAULT_NAMESPACE
from rzsched.demo import customers
from rzsched.demo.fleet import Fleet
from rzsched.demo.ledger import Books
from rzsched.demo.report import Report, close_books
from rzsched.demo.story import Story

BOOKS = "books.sqlite3"
_SERVER_STOP_S = 10.0
_TICK_S = 0.02


def run(*, folder: str | Path | None = None, keep: bool = False, as_json: bool = False,
        before_closing: Callable[[Path], object] | None = None) -> int:
    """Play the demo and print what happens; give the exit code: 0, or 1 where the books don't balance.

    The data lies in a temporary folder that is removed, unless `keep` or `folder` says otherwise; a given folder must
    be empty or missing, else ValueError. `as_json` prints one JSON document instead of text. `before_closing` is
    called with the books' path before they are looked at. Raises a RzschedError where the demo can't be played.
    """
    began = time.monotonic()
    events: list[str] = []

    def tell(text: str) -> None:
        events.append(f"[{time.monotonic() - began:5.1f}s] {text}")
        if not as_json:
            print(events[-1], flush=True)

    with _ending_on_signals(), _data_folder(folder, keep) as data:
        report = _play(data, tell, before_closing)
        report.seconds, report.events = round(time.monotonic() - began, 1), events
        print(json.dumps(report.document()) if as_json else f"\n{report.table()}", flush=True)
        for fault in report.faults():
            print(f"the books don't balance: {fault}", file=sys.stderr)
        if (keep or folder is not None) and not as_json:
            print(f"\n{_how_to_look(data)}")
    return 1 if report.faults() else 0


def _play(data: Path, tell: Callable[[str], None], before_closing: Callable[[Path], object] | None) -> Report:
    url = _url(data)
    all_customers = customers.load().values()
    with ExitStack() as stack:
        stack.callback(embedded.release, url)
        client = stack.enter_context(Client(url, DEFAULT_NAMESPACE))
        books = stack.enter_context(closing(Books(data / BOOKS)))
        client.queues()
        tell(f"embedded server started, its data in {data}")
        fleet = stack.enter_context(closing(Fleet(data, url, DEFAULT_NAMESPACE, data / BOOKS)))
        scheduled, again = Story(client, books, fleet, tell).play(all_customers)
        lingering = ", ".join(map(str, fleet.stop()))
        tell(f"all is done; told to end, {lingering} goes on" if lingering else "all is done; the workers have ended")
        if before_closing is not None:
            before_closing(data / BOOKS)
        return close_books(client, books, all_customers, scheduled, again)


def _url(data: Path) -> str:
    return f"embedded://{quote(str(data))}"


@contextmanager
def _data_folder(folder: str | Path | None, keep: bool) -> Iterator[Path]:
    """Give an empty folder; remove a temporary one once the server no longer writes there."""
    if folder is not None:
        path = Path(folder).resolve()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{path} is not an empty folder: the demo begins with nothing")
        path.mkdir(parents=True, exist_ok=True)
    else:
        path = Path(tempfile.mkdtemp(prefix="rzsched-demo-")).resolve()
    try:
        yield path
    finally:
        if folder is None and not keep:
            _await_server_end(path)
            shutil.rmtree(path, ignore_errors=True)


def _await_server_end(path: Path) -> None:
    """Wait until the folder's server and its watcher are gone: the watcher holds its lock to the end."""
    deadline = time.monotonic() + _SERVER_STOP_S
    while (lock := watcher.lock_file(str(path / watcher.WATCHER_LOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
        if time.monotonic() > deadline:
            return
        time.sleep(_TICK_S)
    os.close(lock)


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, as Ctrl-C is one, so that no worker outlives the demo."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before: dict[int, Any] = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _how_to_look(data: Path) -> str:
    state = watcher.read_state(str(data))
    port = state.port if state else "PORT"
    return (
        f"Kept in {data}: {BOOKS}, the workers' logs and the server's data. Its server has ended with the demo.\n"
        f"  rzsched --url {_url(data)} scheduler     # runs it again, until Ctrl-C\n"
        f"  redis-cli -p {port}     # AUTH with the password in {data / watcher.STATE}\n"
        "  > hgetall rz:{default.0}:stats"
    )
