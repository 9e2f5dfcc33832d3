"""The crew runs claimed jobs on lanes and turns each end into an outcome. It knows nothing of Redis."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable

from rzsched import execution
from rzsched.calls import Claimed, Outcome
from rzsched.config import WorkerSettings
from rzsched.execution import CANCEL, LOST, SHUTDOWN, TIMEOUT, OpeningRules, Run
from rzsched.keys import Partition
from rzsched.lanes import AsyncLanes, ThreadLanes
from rzsched.reporter import Reporter

_log = logging.getLogger("rzsched.worker")
LOOK_AGAIN_S = 0.005
CLOSE_S = 1.0
"""How long async handlers that a shutdown cancelled may take to end, once their jobs have been handed back."""


class Crew:
    """Run jobs for one worker, on its loop and on threads.

    `runs` is shared with the lease keeper: what is in it is kept alive. `settle(place, outcome)` takes each outcome;
    `slots_free(count, pressing)` is told of slots that are free again, pressing when it is time to settle and
    fetch more.
    """

    def __init__(self, settings: WorkerSettings, reporter: Reporter, runs: dict[str, Run], *,
                 settle: Callable[[Partition, Outcome], None], slots_free: Callable[[int, bool], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._reporter = reporter
        self._settle = settle
        self._slots_free = slots_free
        self._half = max(1, settings.concurrency // 2)
        self._freed = 0
        self.runs = runs
        self.rules: OpeningRules | None = None
        self._async_lanes = AsyncLanes(self._ended)
        self._thread_lanes = ThreadLanes(settings.concurrency, self._ended_on_thread)
        self._thread_ended: deque[tuple[Run, object, BaseException | None]] = deque()
        self._thread_waking = False
        self._has_stuck_lanes = False
        self._looking = False

    @property
    def has_stuck_handlers(self) -> bool:
        """Say whether handlers go on that no one can stop: on threads, or heedless of their cancellation."""
        return self._thread_lanes.is_busy or self._has_stuck_lanes

    # ---- begin

    def begin(self, place: Partition, claimed: list[Claimed], sent: float) -> None:
        """Hand claimed jobs to the lanes; what cannot run becomes an outcome at once."""
        assert self.rules is not None
        if time.monotonic() - sent >= self._settings.lease_s:
            # This process stood still: others may have these jobs already.
            _log.warning("%d claimed jobs not started, their lease has run out", len(claimed))
            self._free_slots(len(claimed))
            return
        on_loop: list[Run] = []
        on_threads: list[Run] = []
        for one in claimed:
            run = execution.open_run(self.rules, place, one, sent)
            if isinstance(run, Run):
                self._keep(run)
                (on_loop if run.task.is_async else on_threads).append(run)
            else:
                self._reporter.refused(place, run)
                self._settle(place, run)
                self._free_slots(1)
        if self._reporter.tells_start:
            for run in on_loop + on_threads:
                self._reporter.started(run)
        if on_loop:
            self._async_lanes.put(on_loop)
        if on_threads:
            self._put_on_threads(on_threads)
        self._look_again_soon()

    def _keep(self, run: Run) -> None:
        """Have the leases of a run kept. One of the same job that is still here has lost its own: this was claimed."""
        before = self.runs.get(run.id)
        self.runs[run.id] = run
        if before is not None:
            self.stop_run(before, LOST)

    def _forget(self, run: Run) -> None:
        if self.runs.get(run.id) is run:
            del self.runs[run.id]

    def _put_on_threads(self, runs: list[Run]) -> None:
        for run in runs:
            if run.policy.timeout_s is not None:
                run.timer = self._loop.call_later(run.policy.timeout_s, self._time_out, run)
        self._thread_lanes.put(runs)

    # ---- end

    def _ended(self, run: Run, result: object, error: BaseException | None) -> bool:
        """Turn the end of a run into an outcome; say whether the loop should get a turn now."""
        if run.timer is not None:
            run.timer.cancel()  # else it would keep the run in memory until it is due
        if not run.ended:
            run.ended = True
            self._forget(run)
            outcome = execution.ended(run, result, error, self._settings.error_limit)
            if outcome is None:
                self._reporter.lost(run)
            else:
                if error is not None or run.schedule or self._reporter.tells_success:
                    self._reporter.ended(run, outcome, error)
                self._settle(run.place, outcome)
        return self._free_slots(1)

    def _free_slots(self, count: int) -> bool:
        """Count free slots; fetch more once half of them are free, or when nothing more is about to end by itself."""
        self._freed += count
        pressing = self._freed >= self._half or not (self._async_lanes.has_waiting or self._thread_lanes.has_waiting)
        if pressing:
            self._freed = 0
        self._slots_free(count, pressing)
        return pressing

    def _look_again_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        """Pass on what ended while others waited to begin: the last of those may run for long."""
        self._looking = False
        if self._async_lanes.has_waiting or self._thread_lanes.has_waiting:  # first, so that no end slips through
            self._look_again_soon()
        self._take_thread_ended()
        if self._freed:
            self._freed = 0
            self._slots_free(0, True)

    def _ended_on_thread(self, run: Run, result: object, error: BaseException | None) -> bool:
        """Pass the end of a run from its thread to the loop. The wake-up is what costs, so many ends share one."""
        self._thread_ended.append((run, result, error))
        if not self._thread_waking and (not self._thread_lanes.has_waiting or len(self._thread_ended) >= self._half):
            self._thread_waking = True
            self._call_on_loop(self._take_thread_ended)
        return False

    def _take_thread_ended(self) -> None:
        self._thread_waking = False
        while self._thread_ended:
            self._ended(*self._thread_ended.popleft())

    # ---- stop

    def stop_run_from_thread(self, run: Run, reason: str) -> None:
        if self._mark(run, reason):
            self._call_on_loop(self._cancel_handler, run)

    def stop_run(self, run: Run, reason: str) -> None:
        """Ask a run to stop: an async handler is cancelled, a plain one sees it in its context."""
        if self._mark(run, reason):
            self._cancel_handler(run)

    def _mark(self, run: Run, reason: str) -> bool:
        """Note that a run shall stop. Any thread may, so that none begins that shall not while the loop is held up."""
        if run.ended or run.stop_reason not in {"", CANCEL} or run.stop_reason == reason:
            return False  # it was asked before: a second cancellation would cut its cleaning up short
        run.stop_reason = reason
        run.tell_handler(reason)
        return True

    def _cancel_handler(self, run: Run) -> None:
        if run.asyncio_task is not None:
            run.asyncio_task.cancel()

    def cancel(self, job_id: str) -> None:
        run = self.runs.get(job_id)
        if run is not None:
            self.stop_run(run, CANCEL)

    def _time_out(self, run: Run) -> None:
        """Interrupt a plain handler that ran past its timeout; give it up when it has not heeded that for a lease."""
        if run.ended:
            return
        run.stop_reason = run.stop_reason or TIMEOUT
        run.tell_handler(TIMEOUT)
        self._thread_lanes.interrupt(run)
        run.timer = self._loop.call_later(self._settings.lease_s, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        if run.ended:
            return
        _log.error("a plain handler goes on past its timeout, its slot is taken until it ends job=%s", run.id)
        run.ended = True
        self._forget(run)
        error = execution.RunGivenUp()
        outcome = execution.ended(run, None, error, self._settings.error_limit)
        if outcome is not None:
            self._reporter.ended(run, outcome, error)
            self._settle(run.place, outcome)
            self._slots_free(0, True)

    def take_waiting(self) -> list[Run]:
        """Take back what has not begun."""
        waiting = self._async_lanes.take_waiting() + self._thread_lanes.take_waiting()
        for run in waiting:
            run.ended = True
            self._forget(run)
        return waiting

    def abandon(self) -> list[Run]:
        """Take what runs on and cannot be stopped from outside: plain handlers on their threads."""
        left = list(self.runs.values())
        for run in left:
            run.ended = True
        self.runs.clear()
        return left

    def stop_all(self) -> None:
        for run in list(self.runs.values()):
            self.stop_run(run, SHUTDOWN)

    async def close(self) -> None:
        self._has_stuck_lanes = not await self._async_lanes.close(CLOSE_S)

    def _call_on_loop(self, function: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: this worker has handed everything back
            self._loop.call_soon_threadsafe(function, *args)
