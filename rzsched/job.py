"""What a job is: its id, what is asked for, and the checked form that is written to Redis. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from rzsched.codec import encode_payload
from rzsched.config import Seconds
from rzsched.names import check_idempotency_key, check_queue, check_task
from rzsched.options import (
    DEFAULT_BACKOFF,
    DEFAULT_IDEMPOTENCY_TTL_S,
    DEFAULT_MAX_RETRIES,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_RETENTION_S,
    EPOCH,
    LAST_MS,
    LONGEST_DELAY_S,
    NO_OPTIONS,
    JobOptions,
    RunPolicy,
    check_backoff,
    check_max_retries,
    check_options,
    check_priority,
    duration_ms,
    run_at_text,
    run_policy,
    write_options,
)
from rzsched.retry import Backoff
from rzsched.status import ENDED, JobStatus, State, instant, read_status, whole

__all__ = [
    "DEFAULT_BACKOFF",
    "DEFAULT_IDEMPOTENCY_TTL_S",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_PRIORITY",
    "DEFAULT_QUEUE",
    "DEFAULT_RETENTION_S",
    "ENDED",
    "EPOCH",
    "LAST_MS",
    "LONGEST_DELAY_S",
    "NO_OPTIONS",
    "JobId",
    "JobOptions",
    "JobSpec",
    "JobStatus",
    "Prepared",
    "RunPolicy",
    "State",
    "TaskLike",
    "check_backoff",
    "check_max_retries",
    "check_options",
    "check_priority",
    "duration_ms",
    "instant",
    "prepare",
    "read_status",
    "run_at_text",
    "run_policy",
    "whole",
]


class JobId(str):
    """A job's id; `created` is False when an idempotency key gave the id of an earlier job."""

    __slots__ = ("created",)
    created: bool

    def __new__(cls, value: str, created: bool = True) -> "JobId":
        self = super().__new__(cls, value)
        self.created = created
        return self

    def __reduce__(self) -> "tuple[type[JobId], tuple[str, bool]]":
        return JobId, (str(self), self.created)


class TaskLike(Protocol):
    """What scheduling needs of a task: its name and the options it was registered with."""

    @property
    def name(self) -> str: ...
    @property
    def job_options(self) -> JobOptions: ...


@dataclass(slots=True)
class JobSpec:
    """One job to be scheduled: what `schedule_job` takes, as a value. See `JobOptions` for None."""

    task: str | TaskLike
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    run_at: datetime | float | None = None
    delay: Seconds | None = None
    queue: str | None = None
    max_retries: int | None = None
    backoff: Backoff | None = None
    priority: int | None = None
    idempotency_key: str | None = None
    idempotency_ttl: Seconds | None = None
    timeout: Seconds | None = None
    expires: Seconds | None = None
    retention: Seconds | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None


class Prepared(NamedTuple):
    """A checked job, ready to be written: `run_at` as `enqueue.lua` takes it, `more` fields flat.

    Jobs of one `concurrency_key` belong to one partition, as those of one `key` do. Where a job has both, the
    concurrency key decides: the idempotency key then holds among jobs of the same concurrency key.
    """

    run_at: str
    priority: str
    key: str
    task: str
    payload: bytes
    more: Sequence[str]
    queue: str
    concurrency_key: str = ""


def prepare(spec: JobSpec | JobOptions, task: str | TaskLike, args: Sequence[Any],
            kwargs: Mapping[str, Any] | None, payload_limit: int) -> Prepared:
    """Check a job and write it as fields; raise TypeError, ValueError or a PayloadError before anything is sent."""
    if isinstance(task, str):
        name, base = check_task(task), NO_OPTIONS
    else:
        name, base = _read_task(task)
    queue = base.queue if spec.queue is None else check_queue(spec.queue)
    priority = base.priority if spec.priority is None else spec.priority
    key = spec.idempotency_key
    payload = encode_payload(args, kwargs, payload_limit)
    more: list[str] = []
    if priority is not None and check_priority(priority) != DEFAULT_PRIORITY:
        more += ("priority", str(priority))
    if key is not None:
        key = check_idempotency_key(key)
        more += ("idempotency_key", key)
    write_options(spec, base, more)
    run_at = "" if spec.run_at is None and spec.delay is None else run_at_text(spec.run_at, spec.delay)
    # Where nothing more is said the empty tuple stands: it spares the garbage collector a list a job.
    return Prepared(run_at, "5" if priority is None else str(priority), key or "", name, payload, more or (),
                    queue or DEFAULT_QUEUE, spec.concurrency_key or base.concurrency_key or "")


def _read_task(task: object) -> tuple[str, JobOptions]:
    name, options = getattr(task, "name", None), getattr(task, "job_options", None)
    if not isinstance(name, str) or not isinstance(options, JobOptions):
        raise TypeError(f"task must be a task's name or a registered task, not {type(task).__name__}")
    return check_task(name), options
