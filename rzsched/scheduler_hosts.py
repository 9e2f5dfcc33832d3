"""Where a scheduler lives: on a thread inside a worker, or in a process of its own until a signal ends it."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Awaitable, Callable

from rzsched.config import SchedulerSettings
from rzsched.connect import backoff_delays
from rzsched.errors import RzschedError
from rzsched.offers import Ask
from rzsched.refusals import CredentialsRefused
from rzsched.scheduler import Scheduler
from rzsched.sweeping import Notice

_log = logging.getLogger("rzsched.scheduler")
Prelude = Callable[[], Awaitable[None]]


class SchedulerThread:
    """A scheduler on a thread and loop of its own, so that no handler can hold it up."""

    def __init__(self, url: str, namespace: str, settings: SchedulerSettings, notice: Notice | None = None,
                 ask: Ask | None = None) -> None:
        self._arguments = (url, namespace, settings)
        self._notice = notice
        self._ask = ask
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduler: Scheduler | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rzsched-scheduler", daemon=True)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._scheduler = Scheduler(*self._arguments, notice=self._notice, ask=self._ask)
        self._ready.set()
        with contextlib.suppress(CredentialsRefused):  # the worker says it, or goes on without a scheduler of its own
            await self._scheduler.run()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Have it end, without waiting for that."""
        self._ready.wait()
        if self._loop is not None and self._scheduler is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop may just have ended by itself
                self._loop.call_soon_threadsafe(self._scheduler.stop)

    def close(self) -> None:
        self.stop()
        self._thread.join(timeout=10)


def run_scheduler(url: str, namespace: str, settings: SchedulerSettings, before: Prelude | None = None) -> int:
    """Run a scheduler until SIGTERM or SIGINT; give the exit code. `before` is tried until the server has heard it."""
    asyncio.run(_serve_until_signal(url, namespace, settings, before))
    return 0


async def _once_reachable(before: Prelude) -> None:
    delays = backoff_delays()
    while True:
        try:
            return await before()
        except RzschedError as error:
            _log.warning("scheduler tries again: %s", error)
            await asyncio.sleep(next(delays))


async def _serve_until_signal(url: str, namespace: str, settings: SchedulerSettings, before: Prelude | None) -> None:
    scheduler = Scheduler(url, namespace, settings)
    prelude = None if before is None else asyncio.create_task(_once_reachable(before))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, scheduler.stop)
    _log.info("scheduler started id=%s", scheduler.id)
    await scheduler.run()
    if prelude is not None:
        prelude.cancel()
        await asyncio.gather(prelude, return_exceptions=True)
    _log.info("scheduler stopped id=%s", scheduler.id)
