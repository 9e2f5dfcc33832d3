"""One attempt at one job, as steps: open the run, call the handler, say how it ended.

Nothing here talks to Redis. A run is opened from what a claim brought; whatever goes wrong in opening it is an
outcome like any other, so no payload and no handler can take the worker down.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import Context as VariableContext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from rzsched.app import App, Task
from rzsched.calls import Claimed, Outcome
from rzsched.codec import decode_payload, encode_value
from rzsched.context import Context
from rzsched.errors import JobTimeout
from rzsched.job import RunPolicy, instant, run_policy
from rzsched.keys import Partition
from rzsched.retry import Dead, Retry

_log = logging.getLogger("rzsched.worker")

LOST, CANCEL, SHUTDOWN, TIMEOUT = "lost", "cancelled", "shutdown", "timeout"
"""Why a run is asked to stop."""


@dataclass(slots=True, eq=False)
class Run:
    """A claimed job on its way through this worker.

    `leased_from` is the monotonic second at which its lease was surely not older than new: when the claim, or the last
    renewal that succeeded, was sent; the lease lasts `lease_s`. `stop_reason` is the first reason it was asked to stop
    for.
    """

    place: Partition
    id: str
    fence: str
    entry: str
    attempt: int
    task: Task[Any, Any]
    policy: RunPolicy
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    context: Context | None
    key: str
    leased_from: float
    lease_s: float
    schedule: str = ""
    scheduled_for: str = ""
    stop_reason: str = ""
    progress: str = ""
    asyncio_task: "asyncio.Task[Any] | None" = None
    timer: asyncio.TimerHandle | None = None
    ended: bool = False

    def may_begin(self) -> bool:
        """Say whether the handler may be called: nobody has asked the run to stop, and its lease has not run out.

        A process that was frozen goes on here before its lease keeper has looked: the job may run elsewhere by now.
        """
        if not self.stop_reason and time.monotonic() - self.leased_from >= self.lease_s:
            self.stop_reason = LOST
        return not self.stop_reason

    def tell_handler(self, reason: str) -> None:
        """Set what the handler can see of its being asked to stop; any thread may."""
        if self.context is not None:
            (self.context.lost if reason in {LOST, SHUTDOWN} else self.context.cancelled).set()

    def outcome(self, kind: str, a: str | bytes = "", b: str = "", c: str = "") -> Outcome:
        return (kind, self.id, self.fence, self.entry, a, b, c)


@dataclass(frozen=True, slots=True)
class OpeningRules:
    """What opening a run needs to know of its worker."""

    app: App
    state: Any
    lease_s: float
    unknown_delay_ms: str
    unknown_grace_ms: str
    report: Callable[[str, str, str], None]
    """Called with a run's job and fence, and its progress."""


def open_run(rules: OpeningRules, place: Partition, claimed: Claimed, leased_from: float) -> Run | Outcome:
    """Find the task and decode the arguments of what was claimed; give the outcome where that can't be."""
    flat = claimed.flat
    job = dict(zip(flat[::2], flat[1::2], strict=True))
    name = job[b"task"].decode("utf-8", "replace")
    task = rules.app.tasks.get(name)
    key = job.get(b"idempotency_key")
    key_text = key.decode("utf-8", "replace") if key else ""
    if task is None:
        reason = f"unknown task {name[:200]}: no worker of this queue has it"
        return ("UNKNOWN", claimed.id, claimed.fence, claimed.entry, reason, rules.unknown_delay_ms,
                rules.unknown_grace_ms)
    try:
        args, kwargs = decode_payload(job.get(b"payload", b""))
        policy = task.policy if len(job) <= _PLAIN_FIELDS else _own_policy(task, job)
        context = None
        if task.takes_context:
            context = _context(rules, place, claimed, job, key_text)
            args = (context, *args)
    except Exception as error:  # a foreign hand may have written anything into any field
        return ("DEAD", claimed.id, claimed.fence, claimed.entry, describe(error, 500), "", key_text)
    run = Run(place, claimed.id, claimed.fence, claimed.entry, claimed.attempt, task, policy, args, kwargs, context,
              key_text, leased_from, rules.lease_s)
    if len(job) > _PLAIN_FIELDS and b"schedule_id" in job:
        run.schedule = job[b"schedule_id"].decode("utf-8", "replace")
        run.scheduled_for = (job.get(b"scheduled_for") or b"").decode("utf-8", "replace")
    return run


_PLAIN_FIELDS = 3
"""`task payload entry`: a job with no more fields says nothing of its own."""


def _own_policy(task: Task[Any, Any], job: dict[bytes, bytes]) -> RunPolicy:
    said = (job.get(b"max_retries"), job.get(b"backoff"), job.get(b"timeout_ms"), job.get(b"retention_ms"))
    return task.policy if said == (None, None, None, None) else run_policy(task.job_options, *said)


def _context(rules: OpeningRules, place: Partition, claimed: Claimed, job: dict[bytes, bytes], key: str) -> Context:
    return Context(
        job_id=claimed.id, task=job[b"task"].decode(), queue=place.queue, attempt=claimed.attempt,
        fence=int(claimed.fence), idempotency_key=key or None, scheduled_for=instant(job.get(b"scheduled_for")),
        # A job that never waited in the scheduled set was due when its entry was made.
        due_at=instant(job.get(b"due_at") or claimed.entry[2:].split("-")[0]),
        state=rules.state, report=partial(rules.report, claimed.id, claimed.fence),
    )  # fmt: skip


def describe(error: BaseException, limit: int) -> str:
    """Name an exception in at most `limit` bytes, whatever its `str()` does."""
    text = _text_of(error)
    return _clipped(f"{type(error).__name__}: {text[:limit]}" if text else type(error).__name__, limit)


def _text_of(value: object) -> str:
    try:
        return str(value)
    except BaseException as error:  # a handler's exception is foreign code: it may raise anything
        return f"(its str() raised {type(error).__name__})"


def _clipped(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes, without what Redis could not be told (lone surrogates)."""
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def succeeded(run: Run, result: Any) -> Outcome:
    encoded: bytes | str = ""
    if result is not None:
        try:
            encoded = encode_value(result)
        except Exception as error:  # PayloadError mostly; a foreign object may raise anything
            # The effect has happened: to call that a failure would have it happen again.
            _log.warning("a result can't be stored job=%s task=%s error=%s", run.id, run.task.name,
                         describe(error, 500))
    return run.outcome("SUCCEEDED", encoded, run.policy.retention_ms, run.key)


def failed(run: Run, error: BaseException, error_limit: int) -> Outcome:
    """Decide what an exception means: a retry and its delay, or the end."""
    reason = describe(error, error_limit)
    if isinstance(error, Dead):
        return run.outcome("DEAD", _clipped(_text_of(error.reason), error_limit) or reason, c=run.key)
    asks_retry = isinstance(error, Retry)
    may_retry = asks_retry or run.task.retry_on is None or isinstance(error, (*run.task.retry_on, JobTimeout))
    if not may_retry or isinstance(error, run.task.dead_on) or run.attempt > run.policy.max_retries:
        return run.outcome("DEAD", reason, c=run.key)
    delay_s = error.after_s if isinstance(error, Retry) else None
    if delay_s is None:
        delay_s = run.policy.backoff.delay(run.attempt)
    return run.outcome("RETRY", reason, str(max(0, round(delay_s * 1000))))


def stopped(run: Run) -> Outcome | None:
    """Say how a run ends that stopped because it was asked to; None where it is not ours to end any more."""
    if run.stop_reason == CANCEL:
        return run.outcome("CANCELLED", "cancelled", run.policy.retention_ms, run.key)
    if run.stop_reason == SHUTDOWN:
        return released(run)
    return None


def released(run: Run) -> Outcome:
    return run.outcome("RELEASED", b="0")


def ended(run: Run, result: Any, error: BaseException | None, error_limit: int) -> Outcome | None:
    """Say how a run ended, from what its handler returned or raised."""
    if error is None:
        return succeeded(run, result)
    if run.stop_reason == TIMEOUT:
        return failed(run, JobTimeout(run.policy.timeout_s or 0), error_limit)
    if run.stop_reason == CANCEL or (run.stop_reason and isinstance(error, asyncio.CancelledError)):
        return stopped(run)
    return failed(run, error, error_limit)


class in_own_context:
    """Await a coroutine with context variables of its own, so that no job sees what another one set.

    The task that awaits it serves one job after another; a fresh task for each job would cost more than
    many a job does.
    """

    __slots__ = ("_context", "_coroutine")

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine
        self._context: VariableContext = copy_context()

    def __await__(self) -> Any:
        step, context, coroutine = self._context.run, self._context, self._coroutine
        del context
        throw, value = False, None
        while True:
            try:
                awaited = step(coroutine.throw, value) if throw else step(coroutine.send, value)
            except StopIteration as stop:
                return stop.value
            try:
                value, throw = (yield awaited), False
            except BaseException as error:
                value, throw = error, True


async def call_async(run: Run) -> tuple[Any, BaseException | None]:
    """Run an async handler; give its result, or the exception that ended it."""
    if not run.may_begin():
        return None, asyncio.CancelledError()
    try:
        coroutine = run.task.function(*run.args, **run.kwargs)
        timeout_s = run.policy.timeout_s
        if timeout_s is None:
            return await in_own_context(coroutine), None
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await in_own_context(coroutine), None
        except TimeoutError as error:
            if limit.expired() and not run.stop_reason:
                run.stop_reason = TIMEOUT
            return None, error
    except BaseException as error:
        # SystemExit and KeyboardInterrupt included: a handler ends its run with them, not its worker.
        return None, error


def call_plain(run: Run) -> tuple[Any, BaseException | None]:
    """Run a plain handler on this thread; give its result, or the exception that ended it."""
    if not run.may_begin():
        return None, asyncio.CancelledError()
    try:
        return copy_context().run(run.task.function, *run.args, **run.kwargs), None
    except BaseException as error:
        return None, error


class RunGivenUp(BaseException):
    """Stand for the end of a plain handler that heeded no interrupt."""


def now() -> float:
    return time.monotonic()
