"""Tell what happens to jobs: one log line, and the App's hooks. No payload is ever told."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from rzsched.app import App
from rzsched.calls import Outcome, Recovered
from rzsched.execution import Run
from rzsched.hooks import Event, JobEvent
from rzsched.job import instant
from rzsched.keys import Partition

_log = logging.getLogger("rzsched.worker")
HOOKS_S = 5.0
"""How long a worker that stops waits for async hooks."""


class Reporter:
    """Report for one worker, on its loop; async hooks become tasks that `close` waits for."""

    def __init__(self, app: App, worker: str) -> None:
        self._app = app
        self._worker = worker
        self._pending: set[asyncio.Task[None]] = set()
        self.tells_start = bool(app.hooks["started"])
        self.tells_success = bool(app.hooks["succeeded"])

    def started(self, run: Run) -> None:
        self._emit("started", run.id, run.place, run)

    def ended(self, run: Run, outcome: Outcome, error: BaseException | None) -> None:
        kind = outcome[0]
        if run.schedule:
            self._tell_schedule(run.schedule, run.scheduled_for, run.attempt, kind.lower(), run.id)
        if kind == "SUCCEEDED":
            self._emit("succeeded", run.id, run.place, run)
        reason = str(outcome[4]) if kind in {"RETRY", "DEAD"} else ""
        if kind in {"RETRY", "DEAD"}:
            _log.warning("run failed job=%s task=%s attempt=%d outcome=%s error=%s", run.id, run.task.name, run.attempt,
                         kind.lower(), reason[:500], exc_info=error if _log.isEnabledFor(logging.DEBUG) else None)
            self._emit("failed", run.id, run.place, run, reason)
        if kind == "DEAD":
            self._emit("dead", run.id, run.place, run, reason)

    def lost(self, run: Run) -> None:
        _log.warning("run stopped, its lease is gone job=%s task=%s attempt=%d", run.id, run.task.name, run.attempt)
        if run.schedule:
            self._tell_schedule(run.schedule, run.scheduled_for, run.attempt, "lost", run.id)

    def _tell_schedule(self, schedule: str, scheduled_for: str, attempt: int, outcome: str, job_id: str) -> None:
        """One line for each run of a schedule: a repeated attempt can be told from a repeated business date."""
        at = instant(scheduled_for) if scheduled_for.isdecimal() else None
        _log.info("schedule run schedule=%s business_date=%s worker=%s attempt=%d outcome=%s job=%s", schedule,
                  "" if at is None else at.isoformat(), self._worker, attempt, outcome, job_id)

    def refused(self, place: Partition, outcome: Outcome) -> None:
        """Tell of a claimed job that could not even begin."""
        _log.warning("job not run job=%s outcome=%s reason=%s", outcome[1], outcome[0].lower(), str(outcome[4])[:500])
        if outcome[0] == "DEAD":
            self._emit("dead", outcome[1], place, error=str(outcome[4]))

    def noted(self, place: Partition, job_id: str, note: str) -> None:
        """Tell of a finish that the server did not plainly take."""
        if note == "STALE":
            _log.warning("stale finish refused, another run has taken over job=%s", job_id)
            self._emit("stale", job_id, place, error="another run has taken over")
        elif note == "LATE":
            _log.warning("success taken after the lease ran out job=%s", job_id)
        elif note == "DEAD":
            _log.error("job is dead, no worker knew its task job=%s", job_id)
            self._emit("dead", job_id, place, error="unknown task")

    def recovered(self, place: Partition, found: Recovered) -> None:
        self._emit("recovered", found.id, place, error=f"worker lost: {found.worker}")
        if found.what == "DEAD":
            self._emit("dead", found.id, place, error="worker lost")

    async def close(self) -> None:
        """Wait for async hooks, but not for ever."""
        if self._pending:
            _, hanging = await asyncio.wait(self._pending, timeout=HOOKS_S)
            for hook in hanging:
                hook.cancel()

    def _emit(self, kind: Event, job_id: str, place: Partition, run: Run | None = None,
              error: str | None = None) -> None:
        if not self._app.hooks[kind]:
            return
        event = JobEvent(kind=kind, job_id=job_id, task=run.task.name if run else "", queue=place.queue,
                         attempt=run.attempt if run else 0, worker=self._worker, error=error)
        for hook in self._app.hooks.emit(event):
            task = asyncio.get_running_loop().create_task(_finish_hook(hook, kind))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)


async def _finish_hook(hook: Awaitable[Any], kind: str) -> None:
    try:
        await hook
    except (Exception, SystemExit, KeyboardInterrupt):
        _log.exception("a %s hook failed", kind)
