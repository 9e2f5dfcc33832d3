"""Where handlers run: lanes on the event loop for `async def`, lanes on threads for `def`.

A lane takes one run after another. Waking is what costs, so lanes are woken in a chain: one that takes a run wakes the
next only if more runs wait. Runs that end at once are then all done by the first lane, while ones that wait spread
over as many lanes as there are runs.
"""

import asyncio
import contextlib
import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from rzsched import execution
from rzsched.execution import Run

_log = logging.getLogger("rzsched.worker")
Ended = Callable[[Run, Any, BaseException | None], bool]
SLICE_S = 0.002
"""How long a lane runs handlers that never wait before the loop gets a turn."""


class AsyncLanes:
    """Tasks on the running loop; used from that loop only.

    `ended` is called after each run and says whether the loop should get a turn.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._waiting: deque[Run] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._lanes: set[asyncio.Task[None]] = set()
        self._waking = False
        self._closing = False

    def put(self, runs: Iterable[Run]) -> None:
        self._waiting.extend(runs)
        self._wake_one()

    def take_waiting(self) -> list[Run]:
        """Take back the runs that have not begun."""
        runs = list(self._waiting)
        self._waiting.clear()
        return runs

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def _wake_one(self) -> None:
        if self._waking or not self._waiting:
            return
        self._waking = True
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():  # else a cancellation ended its lane
                idle.set_result(None)
                return
        lane = asyncio.get_running_loop().create_task(self._lane())
        self._lanes.add(lane)
        lane.add_done_callback(self._lane_ended)

    def _lane_ended(self, lane: "asyncio.Task[None]") -> None:
        """Replace a lane that a handler has managed to break."""
        self._lanes.discard(lane)
        if not lane.cancelled() and (error := lane.exception()) is not None:
            _log.error("a lane broke: %s", type(error).__name__, exc_info=error)
        if not self._closing:
            self._waking = False
            self._wake_one()

    async def _lane(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        while True:
            self._waking = False
            slice_end = time.monotonic() + SLICE_S
            while self._waiting:
                run = self._waiting.popleft()
                if self._waiting:
                    self._wake_one()
                run.asyncio_task = task
                result, error = await execution.call_async(run)
                run.asyncio_task = None
                if run.stop_reason or task.cancelling() or getattr(task, "_must_cancel", False):
                    await _absorb_cancellation(task)
                if self._ended(run, result, error) or time.monotonic() > slice_end:
                    await asyncio.sleep(0)
                    slice_end = time.monotonic() + SLICE_S
            idle = loop.create_future()
            self._idle.append(idle)
            await idle

    async def close(self, limit_s: float) -> bool:
        """Stop the lanes; say whether all have ended. Their runs must have been asked to stop before."""
        self._closing = True
        lanes = list(self._lanes)
        for lane in lanes:
            lane.cancel()
        return not lanes or not (await asyncio.wait(lanes, timeout=limit_s))[1]


async def _absorb_cancellation(task: "asyncio.Task[Any]") -> None:
    """Let no cancellation meant for a run that has ended reach the lane's next one."""
    # A handler may also have cancelled its own task and taken the count back: then only the flag is left.
    while task.cancelling() or getattr(task, "_must_cancel", False):
        with contextlib.suppress(asyncio.CancelledError):  # the one that was meant for the run
            await asyncio.sleep(0)
        if task.cancelling():
            task.uncancel()


class RunTimedOut(BaseException):
    """Interrupt a plain handler that ran past its timeout; no `except Exception` of its own holds it up."""


class _ThreadLane:
    __slots__ = ("current", "guard", "ident", "parked")

    def __init__(self) -> None:
        self.parked = threading.Lock()
        self.parked.acquire()
        self.guard = threading.Lock()
        self.current: Run | None = None
        self.ident = 0


class ThreadLanes:
    """Daemon threads for plain functions, at most `most`. `ended` is called on the thread that ran the handler."""

    def __init__(self, most: int, ended: Ended) -> None:
        self._most = most
        self._ended = ended
        self._waiting: deque[Run] = deque()
        self._idle: list[_ThreadLane] = []
        self._lanes: list[_ThreadLane] = []
        self._waking = False

    def put(self, runs: Iterable[Run]) -> None:
        self._waiting.extend(runs)
        self._wake_one()

    def take_waiting(self) -> list[Run]:
        """Take back the runs that have not begun."""
        runs = []
        while True:
            try:
                runs.append(self._waiting.popleft())
            except IndexError:
                return runs

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Say whether any thread is at work."""
        return len(self._idle) < len(self._lanes)

    def interrupt(self, run: Run) -> None:
        """Raise RunTimedOut in the thread that runs `run`, as soon as it runs Python code; nothing if it has ended."""
        for lane in self._lanes:
            with lane.guard:
                if lane.current is run:
                    interrupt = ctypes.py_object(RunTimedOut)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(lane.ident), interrupt)
                    return

    def _wake_one(self) -> None:
        if self._waking:
            return
        self._waking = True
        try:
            self._idle.pop().parked.release()
        except IndexError:
            if len(self._lanes) < self._most:
                self._start_lane()
            else:
                self._waking = False  # all lanes are at work: each looks again before it parks

    def _start_lane(self) -> None:
        lane = _ThreadLane()
        self._lanes.append(lane)
        try:
            threading.Thread(target=self._work, args=(lane,), daemon=True, name="rzsched-lane").start()
        except RuntimeError as error:
            # The system has no thread to give: the lanes there are take what waits, one after the other.
            self._lanes.remove(lane)
            self._waking = False
            _log.error("no thread for a plain handler: %s", error)

    def _work(self, lane: _ThreadLane) -> None:
        lane.ident = threading.get_ident()
        self._waking = False
        while True:
            try:
                run = self._waiting.popleft()
            except IndexError:
                self._park(lane)
                continue
            if self._waiting:
                self._wake_one()
            self._ended(run, *self._call(lane, run))

    def _call(self, lane: _ThreadLane, run: Run) -> tuple[Any, BaseException | None]:
        if run.policy.timeout_s is None:
            return execution.call_plain(run)
        outcome: tuple[Any, BaseException | None] | None = None
        try:
            with lane.guard:
                lane.current = run
            outcome = execution.call_plain(run)
            with lane.guard:
                lane.current = None
            _let_interrupt_come()
        except RunTimedOut as late:
            # It was sent while the handler was ending: what the handler did counts, if it got that far.
            lane.current = None
            return outcome or (None, late)
        return outcome

    def _park(self, lane: _ThreadLane) -> None:
        self._idle.append(lane)
        if self._waiting:
            # A run came between the look and the parking: whoever brought it may not have seen this lane.
            try:
                self._idle.remove(lane)
                return
            except ValueError:
                pass  # somebody has just woken this lane: that wake-up is taken below
        lane.parked.acquire()
        self._waking = False


def _let_interrupt_come() -> None:
    """Give a pending interrupt a call to surface in: after this none is left for the next run."""
