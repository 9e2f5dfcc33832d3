"""The worker: one process that runs jobs of some queues, and stops without losing any.

Its parts meet here and know nothing of each other: the pump settles and claims, the crew runs, the lease keeper renews,
the blocking reader waits, a scheduler on a thread of its own moves what is due.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from rzsched import calls, execution
from rzsched.app import App
from rzsched.calls import Outcome, Recovered
from rzsched.config import SchedulerSettings, WorkerSettings
from rzsched.connect import LinkSettings, backoff_delays
from rzsched.crew import Crew
from rzsched.endings import end_tasks, run_to_its_end
from rzsched.errors import ConnectionFailed, RzschedError
from rzsched.execution import OpeningRules, Run
from rzsched.joining import Joiner
from rzsched.keys import Partition
from rzsched.lease import LeaseKeeper, WorkerCard
from rzsched.links import async_link
from rzsched.members import new_member_id
from rzsched.pump import Pump
from rzsched.refusals import CredentialsRefused, OutOfMemory
from rzsched.reporter import Reporter
from rzsched.scheduler_hosts import SchedulerThread

_log = logging.getLogger("rzsched.worker")
OLD_CLAIM = 1 / 3
"""A claim that took that share of a lease is renewed at once."""
CANCELLED_HANDLERS_S = 1.0
"""How long async handlers that a shutdown cancelled may take to end."""
BURST_AHEAD_MS = 1000
"""A burst still waits for what is due so soon."""
SWITCH_S = 0.001
"""How long a busy loop may keep the interpreter from the threads that renew leases and move due jobs: by default 5 ms,
which due jobs would be late by, and a herd of them wait for each of its batches."""


class Worker:
    """Run jobs until stopped or, in burst mode, until nothing is due or running."""

    def __init__(self, app: App, settings: WorkerSettings, worker_id: str | None = None) -> None:
        self.app = app
        self.settings = settings
        self.id = worker_id or new_member_id()
        self._lease_ms = int(settings.lease_s * 1000)
        self._link = async_link(app.url, LinkSettings(command_timeout_s=max(settings.lease_s, 5.0), retry_s=0))
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._reporter = Reporter(app, self.id)
        queues = tuple(queue for queue, _ in settings.queues)
        self._card = WorkerCard(self.id, app.namespace, queues, settings.concurrency, settings.lease_s)
        self._runs: dict[str, Run] = {}
        self._unsettled: dict[tuple[str, str], tuple[Partition, Outcome]] = {}
        self._crew = Crew(settings, self._reporter, self._runs, settle=self._settle, slots_free=self._slots_free)
        self._keeper = LeaseKeeper(
            app.url, self._card, self._runs, self._unsettled, self._crew.stop_run_from_thread, self._regained
        )
        self._joiner = Joiner(app, settings, self.id, self._link, cancel=self._crew.cancel,
                              ask_for_cancels=self._keeper.renew_soon)
        self._joiner.pump = self._pump = Pump(
            self._link, self.id, self._lease_ms, settings.concurrency, begin=self._begin, note=self._reporter.noted,
            may_claim=self._may_claim, known=self._known, rejoin=self._joiner.join, settled=self._settled,
        )  # fmt: skip

    @property
    def has_stuck_handlers(self) -> bool:
        return self._crew.has_stuck_handlers

    def stop(self) -> None:
        """Stop claiming and let running jobs end; a second call hands them back now."""
        if self._stopping.is_set():
            self._hurrying.set()
        how = "now" if self._hurrying.is_set() else "when what runs has ended"
        _log.info("worker stopping %s id=%s running=%d", how, self.id, len(self._runs))
        self._stopping.set()
        self._pump.close()

    # ---- what the parts say to each other

    def _begin(self, place: Partition, claimed: list[calls.Claimed], sent: float) -> None:
        if not self._pump.closing:
            self._crew.begin(place, claimed, sent)
            if time.monotonic() - sent > self.settings.lease_s * OLD_CLAIM:
                self._keeper.renew_soon()  # for this worker a lease runs from when it was asked for
            return
        for one in claimed:  # a claim that was under way when the worker was told to stop
            self._pump.settle(place, ("RELEASED", one.id, one.fence, one.entry, "", "0", ""))
        self._slots_free(len(claimed), True)

    def _slots_free(self, count: int, pressing: bool) -> None:
        self._pump.free += count
        if pressing:
            self._pump.wake()

    def _settle(self, place: Partition, outcome: Outcome) -> None:
        self._unsettled[outcome[1], outcome[2]] = (place, outcome)
        self._pump.settle(place, outcome)

    def _settled(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._unsettled.pop((outcome[1], outcome[2]), None)

    def _may_claim(self) -> bool:
        return self._keeper.is_trusted

    def _known(self) -> dict[Partition, list[str]]:
        known: dict[Partition, list[str]] = {place: [] for place in self._pump.posts}
        for run in list(self._runs.values()):
            known[run.place].append(run.fence)
        return known

    def _regained(self) -> None:
        """Go on claiming; called on the keeper's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._pump.wake)

    def _recovered(self, place: Partition, found: Recovered) -> None:
        """Pass on what the scheduler took back; called on its thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._reporter.recovered, place, found)

    # ---- life

    async def run(self) -> None:
        """Work until stopped. Raises ConnectionFailed or ServerUnsuitable when it cannot even begin."""
        try:
            if await self._join_when_reachable():
                self._keeper.start()
                try:
                    async with self.app.open_lifespan() as state:
                        self._crew.rules = self._opening_rules(state)
                        await self._work()
                finally:
                    await asyncio.to_thread(self._keeper.close)
        finally:
            await self._crew.close()
            await self._reporter.close()
            await self.app.async_client.aclose()
            await self._link.aclose()

    def _opening_rules(self, state: Any) -> OpeningRules:
        return OpeningRules(
            app=self.app, state=state, lease_s=self.settings.lease_s,
            unknown_delay_ms=str(int(self.settings.unknown_delay_s * 1000)),
            unknown_grace_ms=str(int(self.settings.unknown_grace_s * 1000)), report=self._keeper.report_progress,
        )  # fmt: skip

    async def _work(self) -> None:
        scheduler = self._start_scheduler()
        helpers = [
            asyncio.create_task(self._pump.read_when_idle()),
            asyncio.create_task(self._joiner.listen()),
            asyncio.create_task(self._joiner.watch()),
            *([asyncio.create_task(self._stop_when_done())] if self.settings.burst else []),
        ]
        _log.info("worker started id=%s queues=%s concurrency=%d", self.id, ",".join(self._card.queues),
                  self.settings.concurrency)
        try:
            await self._pump.run()
            if scheduler is not None:
                scheduler.stop()
            await self._pump.reads.close()
            await self._drain()
        finally:
            await end_tasks(helpers)
            if scheduler is not None:
                await asyncio.to_thread(scheduler.close)
            _log.info("worker stopped id=%s", self.id)

    def _start_scheduler(self) -> SchedulerThread | None:
        if not self.settings.scheduler:
            return None
        scheduler = SchedulerThread(self.app.url, self.app.namespace, SchedulerSettings(), self._recovered,
                                    self._pump.ask)
        scheduler.start()
        return scheduler

    # ---- joining

    async def _join_when_reachable(self) -> bool:
        """Join, waiting for a server that is away unless told not to; say whether there is work to do."""
        delays, said = backoff_delays(), False
        while not self._stopping.is_set():
            try:
                await self._joiner.join()
                return True
            except CredentialsRefused:
                raise  # waiting would not make them right
            except (ConnectionFailed, OutOfMemory) as error:
                if not self.settings.wait_for_server:
                    raise
                if not said:
                    _log.warning("waiting for the server: %s", error)
                said = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), next(delays))
        return False

    # ---- ending

    async def _stop_when_done(self) -> None:
        """Burst mode: stop once nothing is due, ready or running in any queue of this worker."""
        while not self._stopping.is_set():
            if not self._runs and self._pump.is_quiet and await self._nothing_left():
                self.stop()
                return
            await asyncio.sleep(0.1)  # other workers' jobs end without telling this one

    async def _nothing_left(self) -> bool:
        """Ask each partition for all of its places at once: between two instants a retry would slip through."""
        try:
            counts = await self._link.execute([calls.measure(place) for place in self._pump.posts])
        except RzschedError:
            return False  # it will tell when it is back
        # What a paused queue keeps waiting is for the next worker.
        left = (count.running + ("paused" not in count.limits) * count.ready for count in counts)
        soon = (count.due_in_ms is not None and count.due_in_ms <= BURST_AHEAD_MS for count in counts)
        return not any(left) and not any(soon)

    async def _drain(self) -> None:
        """Let running jobs end in the time there is, hand the rest back, and leave."""
        for run in self._crew.take_waiting():
            self._pump.settle(run.place, execution.released(run))
        await self._settle_for(self.settings.shutdown_timeout_s, until_hurried=True)
        if self._runs:
            self._crew.stop_all()
            await self._settle_for(CANCELLED_HANDLERS_S)
        for run in self._crew.abandon():
            # No thread can be stopped from outside. Its job goes back and the lock with it: a late finish is refused.
            self._pump.settle(run.place, execution.released(run))
        await self._pump.leave(min(self.settings.lease_s, 5.0))

    async def _settle_for(self, limit_s: float, *, until_hurried: bool = False) -> None:
        """Settle what ends, for `limit_s` seconds at most."""
        end = time.monotonic() + limit_s
        hurried = asyncio.create_task(self._hurrying.wait())
        while self._runs and (left := end - time.monotonic()) > 0 and not (until_hurried and hurried.done()):
            self._pump.kick.clear()
            self._pump.launch()
            kicked = asyncio.create_task(self._pump.kick.wait())
            waited = {kicked, hurried} if until_hurried else {kicked}
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            kicked.cancel()
        hurried.cancel()


def _count(answer: bytes | None) -> int:
    return int(answer or 0)


def run_worker(app: App, settings: WorkerSettings, worker_id: str | None = None) -> int:
    """Run a worker until a signal or the end of a burst; give the exit code.

    Raises ConnectionFailed for refused credentials or with `wait_for_server` off, ServerUnsuitable.
    """
    sys.setswitchinterval(SWITCH_S)
    run_to_its_end(_serve(app, settings, worker_id))
    return 0


async def _serve(app: App, settings: WorkerSettings, worker_id: str | None) -> None:
    worker = Worker(app, settings, worker_id)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    await worker.run()
    if worker.has_stuck_handlers:
        # Their jobs were handed back: every effect they have from now on is stale. Nothing else ends them.
        logging.shutdown()
        os._exit(0)
