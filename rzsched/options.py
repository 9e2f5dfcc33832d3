"""What may be said of a job beside its task and arguments, checked and written as fields. Pure."""

import math
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Protocol

from rzsched.config import Seconds, seconds
from rzsched.names import check_idempotency_key, check_queue
from rzsched.retry import Backoff

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_RETRIES = 3
DEFAULT_RETENTION_S = 3600
DEFAULT_IDEMPOTENCY_TTL_S = 86400

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, beyond which no datetime goes."""
LONGEST_DELAY_S = 7_900 * 365 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """Everything that can be said of a job beside its task and arguments.

    None means "not said here": the task says it, or the default holds. Durations are seconds or timedeltas.
    `run_at` is an aware datetime or epoch seconds; with `delay` it is one or the other.
    """

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

    def over(self, other: "JobOptions") -> "JobOptions":
        """Merge: what is said here wins over what `other` says."""
        said = {name: value for name in _OPTION_NAMES if (value := getattr(self, name)) is not None}
        if "run_at" in said or "delay" in said:
            other = replace(other, run_at=None, delay=None)
        return replace(other, **said)


_OPTION_NAMES = tuple(option.name for option in fields(JobOptions))
NO_OPTIONS = JobOptions()


class OptionsLike(Protocol):
    """Whatever carries the options that are written as fields: `JobOptions` and `JobSpec` do."""

    @property
    def max_retries(self) -> int | None: ...
    @property
    def backoff(self) -> Backoff | None: ...
    @property
    def idempotency_ttl(self) -> Seconds | None: ...
    @property
    def timeout(self) -> Seconds | None: ...
    @property
    def expires(self) -> Seconds | None: ...
    @property
    def retention(self) -> Seconds | None: ...
    @property
    def concurrency_key(self) -> str | None: ...
    @property
    def concurrency_limit(self) -> int | None: ...


def write_options(spec: OptionsLike, base: JobOptions, written: list[str]) -> None:
    """Write what is said; what only scripts read (`expires`, `idempotency_ttl`, `concurrency_…`) also from the task."""
    if spec.max_retries is not None:
        written += ("max_retries", str(check_max_retries(spec.max_retries)))
    if spec.backoff is not None:
        written += ("backoff", check_backoff(spec.backoff).to_text())
    if spec.timeout is not None:
        written += ("timeout_ms", duration_ms(spec.timeout, "timeout", 1))
    if spec.retention is not None:
        written += ("retention_ms", duration_ms(spec.retention, "retention", 0))
    expires = base.expires if spec.expires is None else spec.expires
    if expires is not None:
        written += ("expires_ms", duration_ms(expires, "expires", 1))
    ttl = base.idempotency_ttl if spec.idempotency_ttl is None else spec.idempotency_ttl
    if ttl is not None:
        text = duration_ms(ttl, "idempotency_ttl", 1)
        if text != str(DEFAULT_IDEMPOTENCY_TTL_S * 1000):
            written += ("idempotency_ttl_ms", text)
    write_concurrency(spec, base, written)


def write_concurrency(spec: OptionsLike, base: JobOptions, written: list[str]) -> None:
    """Write the concurrency key and its limit, which says nothing without a key."""
    limit = base.concurrency_limit if spec.concurrency_limit is None else spec.concurrency_limit
    if limit is not None:
        check_concurrency_limit(limit)
    key = base.concurrency_key if spec.concurrency_key is None else spec.concurrency_key
    if key is not None:
        written += ("concurrency_key", check_idempotency_key(key, "concurrency_key"))
        if limit is not None and limit != 1:
            written += ("concurrency_limit", str(limit))


def check_options(options: JobOptions) -> JobOptions:
    """Check a task's options when it is registered."""
    if options.run_at is not None or options.delay is not None or options.idempotency_key is not None:
        raise ValueError("run_at, delay and idempotency_key belong to one job: set them on .options() or the call")
    if options.queue is not None:
        check_queue(options.queue)
    if options.priority is not None:
        check_priority(options.priority)
    write_options(options, NO_OPTIONS, [])
    return options


def check_priority(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"priority must be an int from 0 (first) to 9, not {type(value).__name__}")
    if not 0 <= value <= 9:
        raise ValueError(f"priority must be from 0 (first) to 9, not {value}")
    return value


def check_max_retries(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"max_retries must be an int, not {type(value).__name__}")
    if not 0 <= value <= 1_000_000_000:
        raise ValueError(f"max_retries must be from 0 to 1000000000, not {value}")
    return value


def check_concurrency_limit(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"concurrency_limit must be an int, not {type(value).__name__}")
    if not 1 <= value <= 1_000_000:
        raise ValueError(f"concurrency_limit must be from 1 to 1000000, not {value}")
    return value


def check_backoff(value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise TypeError(f"backoff must be a Backoff, not {type(value).__name__}")
    return value


def duration_ms(value: object, what: str, least_ms: int) -> str:
    """Write a duration as whole ms of at least `least_ms`; refuse what is negative or over 7,900 years."""
    number = seconds(value, what)
    if number < 0 or (number == 0 and least_ms > 0) or number > LONGEST_DELAY_S:
        raise ValueError(f"{what} must be {'over' if least_ms else 'at least'} 0 seconds and under 7,900 years, "
                         f"not {str(value)[:40]}")
    return str(max(math.ceil(number * 1000), least_ms))


def run_at_text(run_at: object, delay: object) -> str:
    """Write when a job is due as `enqueue.lua` takes it: '' for now, '+ms' from now, or ms since the epoch."""
    if delay is not None:
        if run_at is not None:
            raise ValueError("give run_at or delay, not both")
        return _delay_text(delay)
    if run_at is None:
        return ""
    if isinstance(run_at, datetime):
        if run_at.utcoffset() is None:
            raise ValueError("run_at must be an aware datetime: give it a tzinfo, e.g. datetime.now(UTC)")
        ms = (run_at - EPOCH) // timedelta(milliseconds=1)
    elif isinstance(run_at, bool) or not isinstance(run_at, int | float):
        raise TypeError(f"run_at must be an aware datetime or epoch seconds, not {type(run_at).__name__}")
    else:
        ms = int(min(max(seconds(run_at, "run_at") * 1000, -1.0), LAST_MS + 1.0))
    if ms > LAST_MS:
        raise ValueError(f"run_at must be before the year 10000, not {str(run_at)[:40]}: epoch seconds, not ms?")
    return str(ms) if ms > 0 else ""


def _delay_text(delay: object) -> str:
    number = seconds(delay, "delay")
    if number <= 0:
        return ""
    if number > LONGEST_DELAY_S:
        raise ValueError(f"delay must be under 7,900 years, not {str(delay)[:40]} seconds")
    return f"+{math.ceil(number * 1000)}"


class RunPolicy(NamedTuple):
    """What holds for one run: the job's own word, else its task's, else the default."""

    max_retries: int
    backoff: Backoff
    timeout_s: float | None
    retention_ms: str


DEFAULT_BACKOFF = Backoff()


@lru_cache(maxsize=1024)
def run_policy(task: JobOptions, max_retries: bytes | None, backoff: bytes | None, timeout_ms: bytes | None,
               retention_ms: bytes | None) -> RunPolicy:
    """Weigh what the job's hash says against what its task says."""
    retries = task.max_retries if max_retries is None else int(max_retries)
    retention = duration_ms(DEFAULT_RETENTION_S if task.retention is None else task.retention, "retention", 0)
    timeout = None if task.timeout is None else seconds(task.timeout, "timeout")
    return RunPolicy(
        max_retries=DEFAULT_MAX_RETRIES if retries is None else retries,
        backoff=Backoff.from_text(backoff.decode()) if backoff else task.backoff or DEFAULT_BACKOFF,
        timeout_s=int(timeout_ms) / 1000 if timeout_ms else timeout,
        retention_ms=retention_ms.decode() if retention_ms else retention,
    )
