"""The states of a job, and a job's status as it is read back from Redis. Pure."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from rzsched.codec import decode_value
from rzsched.names import job_id_ms
from rzsched.options import DEFAULT_MAX_RETRIES, DEFAULT_PRIORITY, EPOCH, LAST_MS


class State(StrEnum):
    """The states of a job; FAILED means that an attempt failed and a retry is due at `next_run_at`."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


ENDED = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job as it was at one instant. Instants are aware UTC datetimes; `result` is decoded.

    `next_run_at` is when a waiting job is (or was) due; `attempts` counts runs begun, 1 while the first runs.
    A `parked` job waits until another one of its `concurrency_key` ends.
    """

    id: str
    task: str
    queue: str
    state: State
    attempts: int
    max_retries: int
    last_error: str | None
    next_run_at: datetime | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    priority: int
    idempotency_key: str | None
    locked_by: str | None
    lock_expiry: datetime | None
    result: Any
    progress: str | None
    schedule_id: str | None = None
    scheduled_for: datetime | None = None
    replays: int = 0
    concurrency_key: str | None = None
    parked: bool = False
    payload: bytes = field(default=b"", repr=False)


def instant(ms: str | bytes | float | None) -> datetime | None:
    """Read ms since the epoch as an aware UTC datetime; None where there is none that can be read."""
    if ms is None or ms in {"", b""}:
        return None
    try:
        return EPOCH + timedelta(milliseconds=min(int(float(ms)), LAST_MS))
    except (ValueError, OverflowError):  # a foreign hand wrote it
        return None


_DIGITS = 15


def whole(value: str | bytes | None, default: int) -> int:
    """Read a whole number as the scripts do: whatever else a foreign hand wrote counts as not said."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value or ""
    digits = text.removeprefix("-")
    return int(text) if len(text) <= _DIGITS and digits.isascii() and digits.isdecimal() else default


def _state(value: bytes | None) -> State:
    """Read a state; a job whose state says nothing waits, for whom it is a claim away from one that does."""
    try:
        return State(_text(value) or "PENDING")
    except ValueError:
        return State.PENDING


def _ready_due(job: dict[bytes, bytes]) -> bytes:
    """Say when a ready job was due: it remembers, or its entry was made then (see `lua/lib/ready.lua`)."""
    return job.get(b"due_at") or job[b"entry"][2:].split(b"-")[0]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def read_status(job_id: str, answer: list[Any]) -> JobStatus:
    """Read what `inspect.lua` answers after FOUND."""
    score, lock, lock_ttl_ms, now, known_max_retries, flat = answer
    job = dict(zip(flat[::2], flat[1::2], strict=True))
    state = _state(job.get(b"state"))
    due = score or (_ready_due(job) if state is State.PENDING and job.get(b"entry") else None)
    retries = whole(job.get(b"max_retries"), whole(known_max_retries, DEFAULT_MAX_RETRIES))
    result = job.get(b"result")
    return JobStatus(
        id=job_id,
        task=_text(job.get(b"task")) or "",
        queue=job_id.split(".", 1)[0],
        state=state,
        attempts=whole(job.get(b"attempts"), 0),
        max_retries=retries,
        last_error=_text(job.get(b"last_error")),
        next_run_at=instant(due),
        created_at=instant(job.get(b"created_at") or job_id_ms(job_id)),
        started_at=instant(job.get(b"started_at")),
        finished_at=instant(job.get(b"finished_at")) if state in ENDED else None,
        priority=whole(job.get(b"priority"), DEFAULT_PRIORITY),
        idempotency_key=_text(job.get(b"idempotency_key")),
        locked_by=lock.decode().rpartition("#")[0] if lock else None,
        lock_expiry=instant(int(now) + int(lock_ttl_ms)) if lock else None,
        result=None if result is None else decode_value(result),
        progress=_text(job.get(b"progress")),
        schedule_id=_text(job.get(b"schedule_id")),
        scheduled_for=instant(job.get(b"scheduled_for")),
        concurrency_key=_text(job.get(b"concurrency_key")),
        parked=job.get(b"entry", b"").startswith(b"parked/"),
        replays=whole(job.get(b"replays"), 0),
        payload=job.get(b"payload", b""),
    )
