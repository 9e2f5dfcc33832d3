"""The App: tasks registered by decorators, hooks, and the way from a task to its jobs."""

import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from rzsched.aio import AsyncClient
from rzsched.client import Client
from rzsched.config import DEFAULT_NAMESPACE, DEFAULT_URL, ClientSettings, Durability, Seconds, check_durability
from rzsched.context import Context
from rzsched.hooks import Event, Hook, Hooks
from rzsched.job import NO_OPTIONS, JobId, JobOptions, JobStatus, check_options, run_policy
from rzsched.names import check_namespace, check_task
from rzsched.retry import Backoff
from rzsched.schedule import check_timing
from rzsched.schedules import ScheduleSpec, define
from rzsched.signatures import is_async, signature_of_arguments, takes_context
from rzsched.urls import check_url

P = ParamSpec("P")
R = TypeVar("R")
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
ErrorTypes = tuple[type[BaseException], ...]

_log = logging.getLogger("rzsched.app")


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was scheduled. `created` is False when an idempotency key gave an earlier one."""

    id: JobId
    app: "App"

    @property
    def created(self) -> bool:
        return self.id.created

    def status(self) -> JobStatus:
        return self.app.client.get_job_status(self.id)

    def cancel(self) -> bool:
        return self.app.client.cancel_job(self.id)

    def wait(self, timeout: Seconds | None = None) -> Any:
        """Wait for the result; see `Client.wait`."""
        return self.app.client.wait(self.id, timeout)

    async def astatus(self) -> JobStatus:
        return await self.app.async_client.get_job_status(self.id)

    async def acancel(self) -> bool:
        return await self.app.async_client.cancel_job(self.id)

    async def await_result(self, timeout: Seconds | None = None) -> Any:
        """`wait` for asyncio: with the usual `a` it would be a keyword."""
        return await self.app.async_client.wait(self.id, timeout)


class Bound(Generic[P]):
    """A task with job options of its own, from `task.options(...)`."""

    def __init__(self, task: "Task[P, Any]", said: JobOptions, durability: Durability | None = None) -> None:
        self._task = task
        self._said = said
        self._durability = durability

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        self._task.check_arguments(args, kwargs)
        app = self._task.app
        return Job(app.client.schedule(self._task, args, kwargs, self._said, self._durability), app)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        self._task.check_arguments(args, kwargs)
        app = self._task.app
        return Job(await app.async_client.schedule(self._task, args, kwargs, self._said, self._durability), app)


class Task(Generic[P, R]):
    """A registered function. Calling it calls the function; `enqueue` makes a job that a worker runs."""

    def __init__(self, app: "App", function: Callable[..., R], name: str, options: JobOptions,
                 retry_on: ErrorTypes | None, dead_on: ErrorTypes) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.job_options = check_options(options)
        self.policy = run_policy(options, None, None, None, None)
        self.retry_on = retry_on
        self.dead_on = dead_on
        self.is_async = is_async(function)
        self.takes_context = takes_context(function)
        self._signature = signature_of_arguments(function, with_context=self.takes_context)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def check_arguments(self, args: Any, kwargs: Any) -> None:
        """Refuse arguments that the function could never take, before a job is made of them."""
        if self._signature is None:
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.name}: {error}") from None

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Schedule a run as soon as possible."""
        return Bound(self, NO_OPTIONS).enqueue(*args, **kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        return await Bound(self, NO_OPTIONS).aenqueue(*args, **kwargs)

    def options(
        self,
        *,
        run_at: datetime | float | None = None,
        delay: Seconds | None = None,
        queue: str | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        idempotency_ttl: Seconds | None = None,
        timeout: Seconds | None = None,
        expires: Seconds | None = None,
        retention: Seconds | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        durability: Durability | None = None,
    ) -> Bound[P]:
        """Say more of the next job than the task does; what is said here wins. `durability` is that of the call."""
        said = JobOptions(
            run_at=run_at, delay=delay, queue=queue, max_retries=max_retries, backoff=backoff, priority=priority,
            idempotency_key=idempotency_key, idempotency_ttl=idempotency_ttl, timeout=timeout, expires=expires,
            retention=retention, concurrency_key=concurrency_key, concurrency_limit=concurrency_limit,
        )  # fmt: skip
        return Bound(self, said, None if durability is None else check_durability(durability))

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class ContextTask(Task[P, R]):
    """A task whose function takes a `Context` first; its jobs are enqueued without one."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        return self.function(ctx, *args, **kwargs)


class App:
    """Tasks and hooks of one program, and the server they belong to.

    `url` defaults to $RZSCHED_URL, then redis://localhost:6379/0. `lifespan` is called with the App and gives an async
    context manager, entered once in each worker process; what it yields is `ctx.state`. `durability` is what calls
    that make jobs wait for unless they say their own, see `Client.schedule_job`.
    """

    def __init__(self, url: str | None = None, *, name: str = "app", namespace: str | None = None,
                 lifespan: Lifespan | Callable[[], AbstractAsyncContextManager[Any]] | None = None,
                 durability: Durability = "memory") -> None:
        self.durability = check_durability(durability)
        self.url = check_url(url or os.environ.get("RZSCHED_URL") or DEFAULT_URL)
        self.namespace = check_namespace(namespace or os.environ.get("RZSCHED_NAMESPACE") or DEFAULT_NAMESPACE)
        self.name = check_namespace(name)
        self.lifespan = lifespan
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, ScheduleSpec] = {}
        self.hooks = Hooks()

    def rebind(self, url: str | None = None, namespace: str | None = None) -> None:
        """Point the App at another server or namespace, as the command line may."""
        self.url = check_url(url or self.url)
        self.namespace = check_namespace(namespace or self.namespace)
        self.__dict__.pop("client", None)
        self.__dict__.pop("async_client", None)

    @cached_property
    def client(self) -> Client:
        return Client(self.url, self.namespace, durability=self.durability)

    @cached_property
    def async_client(self) -> AsyncClient:
        return AsyncClient(self.url, self.namespace, durability=self.durability)

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, queue: str | None = None, max_retries: int | None = None,
             backoff: Backoff | None = None, priority: int | None = None, timeout: Seconds | None = None,
             expires: Seconds | None = None, retention: Seconds | None = None, idempotency_ttl: Seconds | None = None,
             concurrency_key: str | None = None, concurrency_limit: int | None = None,
             retry_on: ErrorTypes | type[BaseException] | None = None,
             dead_on: ErrorTypes | type[BaseException] = ()) -> "TaskDecorator": ...

    def task(self, function: Callable[..., Any] | None = None, /, *, name: str | None = None,
             retry_on: ErrorTypes | type[BaseException] | None = None,
             dead_on: ErrorTypes | type[BaseException] = (), **said: Any) -> Any:
        """Register a function as a task, named after it unless `name` says otherwise.

        The options hold for all its jobs, unless `.options()` or a call says otherwise. With `retry_on` only those
        exceptions are retried and any other ends the job DEAD at once; `dead_on` ends it at once for those.
        """
        retried = _error_types(retry_on, "retry_on") if retry_on else None
        decorator = TaskDecorator(self, name, JobOptions(**said), retried, _error_types(dead_on, "dead_on"))
        return decorator if function is None else decorator(function)

    def add(self, task: Task[Any, Any]) -> None:
        known = self.tasks.get(task.name)
        if known is not None and known.function is not task.function:
            raise ValueError(f"two tasks are named {task.name}: give one another name, @app.task(name=...)")
        self.tasks[task.name] = task

    def cron(self, cron: str | None = None, *, every: Seconds | None = None, tz: str = "UTC", id: str | None = None,
             overlap: str = "skip", misfire: str = "once", misfire_limit: int = 100,
             misfire_window: Seconds | None = None, jitter: Seconds = 0, start: datetime | float | None = None,
             end: datetime | float | None = None, dst_gap: str = "after", dst_fold: str = "first",
             args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **said: Any) -> "CronDecorator":
        """Declare a schedule for the function or task below; see `Client.schedule_cron`.

        A plain function becomes a task; `said` are the options of `@app.task` then, and job options on a task. Workers,
        and `rzsched scheduler module:app`, register what the App declares when they start, and remove what an App
        of this name declared before and declares no longer.
        """
        timing = {
            "cron": cron, "every": every, "tz": tz, "overlap": overlap, "misfire": misfire, "start": start, "end": end,
            "misfire_limit": misfire_limit, "misfire_window": misfire_window, "jitter": jitter, "dst_gap": dst_gap,
            "dst_fold": dst_fold,
        }  # fmt: skip
        check_timing(**timing)  # type: ignore[arg-type]  # here, where the fault is, not at the decorated function
        return CronDecorator(self, id, timing, args, kwargs, said)

    def declare(self, spec: ScheduleSpec) -> None:
        if spec.id in self.schedules:
            raise ValueError(f"two schedules have the id {spec.id}: give one another, @app.cron(..., id=...)")
        self.schedules[spec.id] = spec

    def on(self, event: Event) -> Callable[[Hook], Hook]:
        """Register a hook, called with a `JobEvent`; an exception in one is logged and changes nothing."""
        return self.hooks.register(event)

    def open_lifespan(self) -> AbstractAsyncContextManager[Any]:
        if self.lifespan is None:
            return _NoLifespan()
        wants_app = len(inspect.signature(self.lifespan).parameters) > 0
        return self.lifespan(self) if wants_app else self.lifespan()  # type: ignore[call-arg]


class _NoLifespan(AbstractAsyncContextManager[None]):
    async def __aexit__(self, *_: object) -> None:
        return None


def _error_types(given: ErrorTypes | type[BaseException], what: str) -> ErrorTypes:
    types = given if isinstance(given, tuple) else (given,)
    for kind in types:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"{what} takes exception types, not {kind!r}")
    return types


@dataclass(frozen=True, slots=True)
class TaskDecorator:
    """What `@app.task(...)` gives: it registers the function below it."""

    app: App
    name: str | None
    options: JobOptions
    retry_on: ErrorTypes | None
    dead_on: ErrorTypes

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Task[Any, Any]:
        if not callable(function):
            raise TypeError(f"@app.task decorates a function, not {type(function).__name__}")
        own_name: str = getattr(function, "__name__", type(function).__name__)
        name = check_task(self.name or own_name)
        kind: type[Task[Any, Any]] = ContextTask if takes_context(function) else Task
        task = kind(self.app, function, name, self.options, self.retry_on, self.dead_on)
        self.app.add(task)
        return task


@dataclass(frozen=True, slots=True)
class CronDecorator:
    """What `@app.cron(...)` gives: it declares a schedule for the task below it, or makes a task of the function."""

    app: App
    id: str | None
    timing: dict[str, Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    said: dict[str, Any]

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextTask[P, R]: ...
    @overload
    def __call__(self, function: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Task[Any, Any]:
        if isinstance(function, Task):
            task: Task[Any, Any] = function
            options = JobOptions(**self.said)
        else:
            task = self.app.task(**self.said)(function)
            options = NO_OPTIONS
        task.check_arguments(self.args, self.kwargs or {})
        self.app.declare(define(
            task, id=self.id, args=self.args, kwargs=self.kwargs, options=check_options(options),
            payload_limit=ClientSettings().payload_limit, **self.timing,
        ))  # fmt: skip
        return task
