"""Several worker processes under one parent.

The parent runs the scheduler and watches its children. When one dies it hands the child's jobs back at once, for it
knows what others learn only when the lease has run out, and starts another. Each child holds the read end of a pipe
whose write end only the parent has: when the parent dies, however it dies, the children see the pipe's end and stop as
on SIGTERM.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import watchfiles

from rzsched import calls, keys
from rzsched.app import App
from rzsched.config import SchedulerSettings, WorkerSettings
from rzsched.connect import LinkSettings, backoff_delays
from rzsched.endings import end_tasks
from rzsched.errors import RzschedError
from rzsched.links import async_link
from rzsched.members import new_member_id
from rzsched.recovery import recover
from rzsched.reporter import Reporter
from rzsched.scheduler import Scheduler

_log = logging.getLogger("rzsched.supervisor")
STARTED_S = 2.0
"""A first child that ends sooner, by its own exit code, could not start: nor will the next."""
NOT_LOADED = 70
"""The exit code of a child whose App could not be imported."""
COULD_NOT_START = frozenset({2, 4, NOT_LOADED})
"""Wrong usage, refused credentials, or that: no worker ends so later, however long its start took."""


def child_command(target: str, settings: WorkerSettings, worker_id: str, *, verbose: bool) -> list[str]:
    """Spell the command line of one child. URL and namespace go by environment: a URL may hold a password."""
    queues = [word for name, weight in settings.queues for word in ("--queues", f"{name}:{weight}")]
    flags = [
        *(["--burst"] if settings.burst else []),
        *([] if settings.wait_for_server else ["--no-wait"]),
        *(["--verbose"] if verbose else []),
    ]
    return [
        sys.executable, "-m", "rzsched", "worker", *queues, "--concurrency", str(settings.concurrency),
        "--lease", str(settings.lease_s), "--shutdown-timeout", str(settings.shutdown_timeout_s),
        "--unknown-grace", str(settings.unknown_grace_s), "--no-scheduler", *flags, "--supervised", worker_id,
        "--", target,
    ]  # fmt: skip


class Supervisor:
    """Keep `processes` workers running until stopped or, in burst mode, until each is done."""

    def __init__(self, app: App, target: str, settings: WorkerSettings, processes: int, *, reload: bool = False,
                 verbose: bool = False) -> None:
        self._app = app
        self._target = target
        self._settings = settings
        self._processes = processes
        self._reload = reload
        self._verbose = verbose
        self._link = async_link(app.url, LinkSettings(command_timeout_s=10, retry_s=1))
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when a worker that could not run may be tried again at once."""
        self._reporter = Reporter(app, new_member_id())
        self._exit_code = 0

    def stop(self) -> None:
        """Pass the wish to stop on to the children; a second call hurries them."""
        self._stopping.set()
        self._changed.set()
        self._signal_children()

    def _signal_children(self) -> None:
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                child.send_signal(signal.SIGTERM)

    async def run(self) -> int:
        """Serve; give the exit code."""
        slots = [asyncio.create_task(self._keep_slot()) for _ in range(self._processes)]
        helpers = [asyncio.create_task(self._watch_files())] if self._reload else []
        scheduler = None
        if self._settings.scheduler:
            scheduler = Scheduler(self._app.url, self._app.namespace, SchedulerSettings(),
                                  notice=self._reporter.recovered)
            helpers.append(asyncio.create_task(scheduler.run()))
        await asyncio.gather(*slots)
        if scheduler is not None:
            scheduler.stop()
            await asyncio.gather(helpers.pop(), return_exceptions=True)
        await end_tasks(helpers)
        await self._reporter.close()
        await self._link.aclose()
        return self._exit_code

    async def _keep_slot(self) -> None:
        """Start a worker, and another one whenever it dies."""
        delays = backoff_delays(first_s=0.1, most_s=10)
        may_start = False
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                worker_id, code = await self._run_child()
            except OSError as error:  # no descriptor, no memory, no process: that may be over soon
                _log.error("no worker process can be started: %s", error)
                await self._pause(next(delays))
                continue
            lived_s = time.monotonic() - begun
            has_started, may_start = may_start, True
            if self._stopping.is_set() or code == 0:
                if code == 0 and not self._stopping.is_set() and not self._settings.burst:
                    continue  # told to stop from outside, or by a reload
                return
            if not has_started and code > 0 and (lived_s < STARTED_S or code in COULD_NOT_START):
                self._exit_code = 1 if code == NOT_LOADED else code
                self.stop()
                return
            _log.error("worker died id=%s exit=%d: its jobs go back at once", worker_id, code)
            await self._hand_back(worker_id)
            if lived_s < STARTED_S:
                await self._pause(next(delays))
            else:
                delays = backoff_delays(first_s=0.1, most_s=10)

    async def _pause(self, seconds: float) -> None:
        """Wait before the next try, unless the code changes or this supervisor is told to stop."""
        if not self._stopping.is_set():
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)

    async def _run_child(self) -> tuple[str, int]:
        worker_id = new_member_id()
        environment = {**os.environ, "RZSCHED_URL": self._app.url, "RZSCHED_NAMESPACE": self._app.namespace}
        command = child_command(self._target, self._settings, worker_id, verbose=self._verbose)
        # A session of its own: Ctrl-C at the terminal reaches the parent only, which passes it on once.
        child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, env=environment,
                                                     start_new_session=True)
        self._children[worker_id] = child
        _log.info("worker process started id=%s pid=%d", worker_id, child.pid)
        if self._stopping.is_set():
            self._signal_children()
        code = await child.wait()
        del self._children[worker_id]
        return worker_id, code

    async def _hand_back(self, worker_id: str) -> None:
        try:
            counts = await self._link.execute([
                calls.command("HGET", keys.queues(self._app.namespace), queue, read=lambda value: int(value or 1))
                for queue, _ in self._settings.queues
            ])  # fmt: skip
            for (queue, _), count in zip(self._settings.queues, counts, strict=True):
                for number in range(count):
                    place = keys.partition(self._app.namespace, queue, number)
                    for found in await recover(self._link, place, worker=worker_id):
                        _log.warning("recovered job=%s outcome=%s from worker=%s", found.id, found.what, worker_id)
                        self._reporter.recovered(place, found)
                    await self._link.execute([calls.release(place, worker_id, leave=True)])
            await self._link.execute([calls.attend(keys.workers(self._app.namespace), worker_id)])
        except RzschedError as error:
            _log.warning("jobs of worker=%s go back when their leases end: %s", worker_id, error)

    async def _watch_files(self) -> None:
        """Have the children stop when the code changes; each slot starts a new one."""
        async for changes in watchfiles.awatch(Path.cwd(), watch_filter=watchfiles.PythonFilter()):
            _log.info("code changed (%d files): workers start again", len(changes))
            self._changed.set()
            self._signal_children()


def stop_with_parent() -> None:
    """Send this process SIGTERM once standard input ends: the supervisor holds the other end."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="rzsched-parent").start()


def supervise(app: App, target: str, settings: WorkerSettings, *, processes: int, reload: bool = False,
              verbose: bool = False) -> int:
    """Run a supervisor until SIGTERM or SIGINT (or the end of a burst); give the exit code."""
    return asyncio.run(_serve(Supervisor(app, target, settings, processes, reload=reload, verbose=verbose)))


async def _serve(supervisor: Supervisor) -> int:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, supervisor.stop)
    return await supervisor.run()


_SIGNALS: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT)
