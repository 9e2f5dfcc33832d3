"""The App that worker processes of tests run: handlers that tell the test what they do, and do what it says.

A handler `meets` the test at a unix socket ($RZSCHED_TEST_STAND, see `tests.fleet.Stand`): it says who it is and may
wait there for a word. What ran is also in the ledger ($RZSCHED_TEST_LEDGER), one JSON line a run, which SIGKILL spares.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from rzsched import App, Backoff, Context, Dead, JobEvent, Retry

QUICK = Backoff(base=0.05, factor=1, max=1, jitter=0)


@contextlib.asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, Any]]:
    yield {"pool": "open", "pid": os.getpid()}


app = App(lifespan=lifespan)


# ---- the ways back to the test


def write_ledger(ctx: Context, event: str = "run") -> None:
    told = {"event": event, "job": ctx.job_id, "task": ctx.task, "attempt": ctx.attempt, "fence": ctx.fence,
            "pid": os.getpid(), "time": time.time()}  # fmt: skip
    path = os.environ.get("RZSCHED_TEST_LEDGER")
    if path:
        with open(path, "a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(told) + "\n")


def _introduction(name: str, more: dict[str, Any]) -> bytes:
    return json.dumps({"name": name, "pid": os.getpid(), **more}).encode() + b"\n"


def tell(name: str, **more: Any) -> None:
    """Tell the test something, and go on."""
    with socket.socket(socket.AF_UNIX) as stand:
        stand.connect(os.environ["RZSCHED_TEST_STAND"])
        stand.sendall(_introduction(name, more))


async def meet(name: str, **more: Any) -> str:
    """Meet the test, and wait for its word; '' when it has gone."""
    reader, writer = await asyncio.open_unix_connection(os.environ["RZSCHED_TEST_STAND"])
    try:
        writer.write(_introduction(name, more))
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


def meet_plain(name: str, **more: Any) -> str:
    with socket.socket(socket.AF_UNIX) as stand:
        stand.connect(os.environ["RZSCHED_TEST_STAND"])
        stand.sendall(_introduction(name, more))
        return stand.makefile().readline().strip()


# ---- plain doings


@app.task
async def echo(value: Any = None) -> Any:
    return value


@app.task
def echo_plain(value: Any = None) -> Any:
    return value


@app.task
async def record(ctx: Context, value: Any = None) -> Any:
    write_ledger(ctx)
    return value


@app.task
def record_plain(ctx: Context, value: Any = None) -> Any:
    write_ledger(ctx)
    return value


@app.task
async def nothing() -> None:
    return None


@app.task
async def starts_a_task_that_exits() -> str:
    async def exits() -> NoReturn:
        raise SystemExit(3)

    exiting = asyncio.create_task(exits())
    await asyncio.wait([exiting])
    return f"it raised {exiting.exception()!r}"


def _about(ctx: Context) -> dict[str, Any]:
    return {
        "job_id": ctx.job_id, "task": ctx.task, "queue": ctx.queue, "attempt": ctx.attempt, "fence": ctx.fence,
        "execution_id": ctx.execution_id, "idempotency_key": ctx.idempotency_key, "state": ctx.state,
        "scheduled_for": ctx.scheduled_for, "lost": ctx.lost.is_set(), "cancelled": ctx.cancelled.is_set(),
        "thread": threading.current_thread().name,
    }  # fmt: skip


@app.task(backoff=QUICK)
async def about(ctx: Context, fails: int = 0) -> dict[str, Any]:
    write_ledger(ctx)
    if ctx.attempt <= fails:
        raise ValueError(f"attempt {ctx.attempt}")
    return _about(ctx)


@app.task
def about_plain(ctx: Context) -> dict[str, Any]:
    return _about(ctx)


@app.task
async def log_something(ctx: Context) -> None:
    ctx.log.warning("a word from the handler")


@app.task
async def at(ctx: Context) -> float:
    """Give the moment of its start, for comparison with `due`."""
    now = time.time()
    assert ctx.due_at is not None
    return now - ctx.due_at.timestamp()


# ---- meeting the test


@app.task(backoff=QUICK)
async def gated(ctx: Context, name: str) -> str:
    write_ledger(ctx)
    try:
        word = await meet(name, attempt=ctx.attempt, fence=ctx.fence, job=ctx.job_id)
    except asyncio.CancelledError:
        tell(f"{name} cancelled", cancelled=ctx.cancelled.is_set(), lost=ctx.lost.is_set())
        raise
    if word == "fail":
        raise ValueError("told to fail")
    write_ledger(ctx, "end")
    return word


@app.task(backoff=QUICK)
def gated_plain(ctx: Context, name: str) -> str:
    write_ledger(ctx)
    word = meet_plain(name, attempt=ctx.attempt, fence=ctx.fence, job=ctx.job_id)
    if word == "fail":
        raise ValueError("told to fail")
    write_ledger(ctx, "end")
    return word


@app.task
async def progressing(ctx: Context, name: str) -> None:
    ctx.progress(0.5, "half")
    await meet(name)


@app.task
def until_cancelled(ctx: Context, name: str) -> str:
    tell(name)
    if not ctx.cancelled.wait(20):
        raise TimeoutError("nobody cancelled this")
    tell(f"{name} cancelled", lost=ctx.lost.is_set())
    return "stopped by itself"


@app.task(backoff=QUICK)
def until_lost(ctx: Context, name: str) -> str:
    """Go on until the lease is gone, and then end as if it were not; a second run meets the test."""
    if ctx.attempt > 1:
        return meet_plain(name, attempt=ctx.attempt, fence=ctx.fence)
    tell(name, fence=ctx.fence)
    if not ctx.lost.wait(20):
        raise TimeoutError("the lease was never lost")
    tell(f"{name} lost")
    return "late"


@app.task
async def cleans_up_when_cancelled(name: str) -> None:
    try:
        await meet(name)
    except asyncio.CancelledError:
        word = await meet(f"{name} cleaning")
        tell(f"{name} cleaned", word=word)
        raise


@app.task
async def heedless(name: str) -> None:
    """Take no notice of any cancellation."""
    tell(name)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


# ---- ways to fail


@app.task(backoff=QUICK, max_retries=3)
async def always_fails(ctx: Context, text: str = "no") -> NoReturn:
    write_ledger(ctx)
    raise ValueError(text)


@app.task(max_retries=2, backoff=Backoff(base=0.3, factor=2, max=10, jitter=0))
async def fails_slowly(ctx: Context) -> NoReturn:
    write_ledger(ctx)
    raise ValueError("no")


@app.task
async def retries_after(ctx: Context, after: float) -> int:
    write_ledger(ctx)
    if ctx.attempt == 1:
        raise Retry(after=after)
    return ctx.attempt


@app.task
async def dies(ctx: Context, reason: str = "hopeless") -> NoReturn:
    write_ledger(ctx)
    raise Dead(reason)


@app.task(retry_on=KeyError, backoff=QUICK)
async def retries_key_errors(ctx: Context, kind: str) -> str:
    if ctx.attempt == 1:
        raise KeyError("again") if kind == "key" else ValueError("not again")
    return "done"


@app.task(dead_on=(LookupError,), backoff=QUICK)
def dies_on_lookup_errors(ctx: Context, kind: str) -> str:
    if ctx.attempt == 1:
        raise KeyError("at once") if kind == "key" else ValueError("again")
    return "done"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class DemandingError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


def _raise(kind: str) -> NoReturn:
    if kind == "import":
        __import__("a_module_that_is_not_there")
    if kind == "unspeakable":
        raise UnspeakableError
    if kind == "huge":
        raise ValueError("x" * 50_000_000)
    if kind == "wide":
        raise Dead("\U0001f600" * 10_000 + "\ud800")
    if kind == "exit":
        sys.exit("gone")
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "generator_exit":
        raise GeneratorExit
    if kind == "cancelled":
        raise asyncio.CancelledError
    raise DemandingError("one", "two")


@app.task(max_retries=0)
async def raises(kind: str) -> NoReturn:
    _raise(kind)


@app.task(max_retries=0)
def raises_plain(kind: str) -> NoReturn:
    _raise(kind)


@app.task
async def returns_what_cannot_be_stored() -> object:
    return object()


@app.task(max_retries=2, backoff=QUICK)
def kills_its_worker(ctx: Context) -> None:
    write_ledger(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(backoff=QUICK, max_retries=1)
async def logs_in(credentials: dict[str, str], how: str) -> None:
    """Do something with a secret; nothing of it may show anywhere."""
    if how == "fail":
        raise ValueError("the login failed")
    if how == "die":
        raise Dead("no such user")


# ---- time


@app.task(timeout=0.3, max_retries=0)
async def too_slow(ctx: Context) -> None:
    write_ledger(ctx)
    await asyncio.sleep(3600)


@app.task(timeout=0.3, max_retries=0)
def too_slow_plain(name: str) -> None:
    try:
        while True:
            time.sleep(0.01)
    finally:
        tell(f"{name} interrupted")


@app.task(timeout=0.3, max_retries=0)
def ignores_its_timeout(name: str) -> None:
    word = ""
    while word != "go":
        try:
            word = meet_plain(name)
        except BaseException:  # it heeds nothing, not even an interrupt
            continue


@app.task(timeout=30)
async def quick_with_timeout(value: int) -> int:
    await asyncio.sleep(0)
    return value


@app.task(timeout=30)
def quick_plain_with_timeout(value: int) -> int:
    return value


@app.task
async def sleeps(ctx: Context, seconds: float) -> None:
    write_ledger(ctx)
    await asyncio.sleep(seconds)


@app.task
async def blocks_the_loop(ctx: Context, seconds: float) -> None:
    write_ledger(ctx)
    time.sleep(seconds)


@app.task
def sleeps_plain(ctx: Context, seconds: float) -> None:
    write_ledger(ctx)
    time.sleep(seconds)


@app.task
def holds_the_interpreter_lock(ctx: Context, seconds: int) -> None:
    write_ledger(ctx)
    ctypes.PyDLL(None).sleep(seconds)  # PyDLL keeps the lock while the C function runs


# ---- games


_seen: contextvars.ContextVar[str] = contextvars.ContextVar("_seen", default="")


@app.task
async def sets_variable(value: str) -> str:
    before = _seen.get()
    _seen.set(value)
    await asyncio.sleep(0)
    return before + "|" + _seen.get()


@app.task
def sets_variable_plain(value: str) -> str:
    before = _seen.get()
    _seen.set(value)
    return before + "|" + _seen.get()


@app.task(max_retries=0)
async def plays(game: str) -> str:
    task = asyncio.current_task()
    assert task is not None
    if game == "timeout":
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        except TimeoutError:
            return "in time"
    if game == "group":
        async with asyncio.TaskGroup() as group:
            children = [group.create_task(asyncio.sleep(0.01, n)) for n in range(3)]
        return str(sum(child.result() for child in children))
    if game == "failing group":
        async with asyncio.TaskGroup() as group:
            group.create_task(_fail_soon())
            await asyncio.sleep(10)
    if game == "self cancel":
        task.cancel()
        await asyncio.sleep(0)
    if game == "cancel and return":
        task.cancel()
    if game == "cancel, take back and return":
        task.cancel()
        task.uncancel()
    if game == "cancel thrice":
        for _ in range(3):
            task.cancel()
    if game == "swallow":
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
    if game == "cancel later":
        asyncio.get_running_loop().call_soon(task.cancel)
    return game


async def _fail_soon() -> NoReturn:
    await asyncio.sleep(0)
    raise ValueError("a child failed")


# ---- hooks, which do something only where a test wants them


def _hook(event: JobEvent) -> None:
    if os.environ.get("RZSCHED_TEST_HOOKS"):
        tell(f"hook {event.kind}", job=event.job_id, task=event.task, attempt=event.attempt, error=event.error)


async def _async_hook(event: JobEvent) -> None:
    if os.environ.get("RZSCHED_TEST_HOOKS"):
        await asyncio.sleep(0)
        tell(f"async hook {event.kind}", job=event.job_id)


def _broken_hook(event: JobEvent) -> None:
    if os.environ.get("RZSCHED_TEST_HOOKS"):
        raise SystemExit(f"a broken {event.kind} hook")


async def _broken_async_hook(event: JobEvent) -> None:
    if os.environ.get("RZSCHED_TEST_HOOKS"):
        raise RuntimeError(f"a broken async {event.kind} hook")


for _kind in app.hooks:
    for _each in (_broken_hook, _hook, _broken_async_hook, _async_hook):
        app.on(_kind)(_each)
