"""What a handler sees of its own run."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

_log = logging.getLogger("rzsched.job")


class Signal:
    """An event that may be set once; cheap until somebody waits for it. Any thread may set it or wait."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until the signal is set, at most `timeout` seconds; say whether it is."""
        if self._event is None:
            self._event = threading.Event()
        if self._is_set:  # it may have been set before there was an event to set
            return True
        return self._event.wait(timeout)

    def __bool__(self) -> bool:
        return self._is_set


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        told = " ".join(f"{name}={value}" for name, value in (self.extra or {}).items())
        return f"{msg} {told}", kwargs


class Context:
    """One run of a job, as its handler sees it: the first parameter annotated `Context` receives it.

    `attempt` counts from 1. `fence` grows with every claim in its partition: store it with an important write, and
    refuse a write whose fence is smaller than the stored one. `execution_id` is the same over all attempts of one job.
    `lost` is set when the lease is gone and another worker may run the job; `cancelled` when somebody asked for it to
    stop. `scheduled_for` is the nominal instant of a schedule's occurrence. `state` is what the App's lifespan gave.
    """

    def __init__(self, *, job_id: str, task: str, queue: str, attempt: int, fence: int, idempotency_key: str | None,
                 scheduled_for: datetime | None = None, state: Any = None, due_at: datetime | None = None,
                 report: Callable[[str], None] | None = None) -> None:
        self.job_id = job_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.fence = fence
        self.idempotency_key = idempotency_key
        self.scheduled_for = scheduled_for
        self.due_at = due_at
        self.state = state
        self.lost = Signal()
        self.cancelled = Signal()
        self._report = report

    @property
    def execution_id(self) -> str:
        return self.job_id

    def progress(self, fraction: float, note: str = "") -> None:
        """Tell how far the run is, from 0 to 1; it shows in the job's status within a moment."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress must be from 0 to 1, not {fraction}")
        if self._report is not None:
            self._report(f"{fraction:g} {note}".strip()[:500])

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job, task and attempt."""
        return _JobLog(_log, {"job": self.job_id, "task": self.task, "attempt": self.attempt})
