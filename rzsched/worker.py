"""The worker: claim jobs, run them, settle them; stop without losing any.

One pump keeps the slots filled. When busy, one call settles the runs that ended and claims as many new ones as
there are free slots. Up to two such calls are under way at once, so that the server works while handlers run. When there is
nothing to claim, a blocking read holds one slot and waits (see `reader`).

A call whose answer was lost may have claimed jobs that this worker does not know of. Then nothing is claimed until everything
that is pending here and not known has been handed back.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any

import redis
import redis.asyncio

from rzsched import calls, execution, keys
from rzsched.app import App, Event, JobEvent
from rzsched.calls import Claimed, Finished, Outcome, Recovered
from rzsched.config import SchedulerSettings, WorkerSettings
from rzsched.connect import AsyncLink, CredentialsRefused, LinkSettings, backoff_delays
from rzsched.errors import ConnectionFailed, RzschedError, ServerUnsuitable
from rzsched.execution import CANCEL, LOST, SHUTDOWN, TIMEOUT, OpeningRules, Run
from rzsched.job import DEFAULT_MAX_RETRIES
from rzsched.keys import Partition
from rzsched.lanes import AsyncLanes, ThreadLanes
from rzsched.lease import LeaseKeeper, WorkerCard
from rzsched.reader import BlockingReader, Delivery, GroupsGone
from rzsched.scheduler import SchedulerThread, new_member_id

_log = logging.getLogger("rzsched.worker")
MOST_CLAIMED = 500
"""Claims in one call, which bounds how long the script holds the server."""
MOST_IN_FLIGHT = 2
FAIR_SLOTS = 8
"""Of this many slots one goes to a priority whose turn it is, so that none starves."""


@dataclass(slots=True, eq=False)
class Post:
    """This worker's work on one partition. `hot`: the last claim came back full, so there is probably more."""

    place: Partition
    weight: int
    hot: bool = True
    outcomes: list[Outcome] = field(default_factory=list)
    fair_credit: int = 0


class Worker:
    """One process that runs jobs of some queues."""

    def __init__(self, app: App, settings: WorkerSettings, worker_id: str | None = None) -> None:
        self.app = app
        self.settings = settings
        self.id = worker_id or new_member_id()
        self._lease_ms = int(settings.lease_s * 1000)
        self._link = AsyncLink(app.url, LinkSettings(command_timeout_s=max(settings.lease_s, 5.0), retry_s=0))
        self._posts: dict[Partition, Post] = {}
        self._free = settings.concurrency
        self._in_flight: set[asyncio.Task[None]] = set()
        self._kick = asyncio.Event()
        self._kick.set()
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._link_lost = False
        self._turn = 0
        self._hook_tasks: set[asyncio.Task[Any]] = set()
        self._thread_ended: deque[tuple[Run, Any, BaseException | None]] = deque()
        self._thread_wake = False
        self._half = max(1, settings.concurrency // 2)
        self._ended_since_kick = 0
        self._notify_started = bool(app.hooks["started"])
        self._notify_succeeded = bool(app.hooks["succeeded"])

    @property
    def has_busy_threads(self) -> bool:
        return self._thread_lanes.is_busy

    # ---- life

    def stop(self) -> None:
        """Stop claiming and let running jobs end; a second call hands them back now."""
        if self._stopping.is_set():
            self._stop_now.set()
        self._stopping.set()
        self._kick.set()
        self._room.set()

    async def run(self) -> None:
        """Work until stopped (or, in burst mode, until nothing is due or running)."""
        self._loop = asyncio.get_running_loop()
        self._card = WorkerCard(
            self.id, self.app.namespace, tuple(queue for queue, _ in self.settings.queues), self.settings.concurrency,
            self.settings.lease_s,
        )  # fmt: skip
        await self._join()
        if self._stopping.is_set():
            return
        self._keeper = LeaseKeeper(self.app.url, self._card, self._stop_run_from_thread, self._wake_from_thread)
        self._async_lanes = AsyncLanes(self._run_ended)
        self._thread_lanes = ThreadLanes(self.settings.concurrency, self._run_ended_on_thread)
        self._keeper.start()
        try:
            async with self.app.open_lifespan() as state:
                self._rules = self._opening_rules(state)
                await self._work()
        finally:
            await self._close()

    def _opening_rules(self, state: Any) -> OpeningRules:
        return OpeningRules(
            app=self.app, state=state, unknown_delay_ms=str(int(self.settings.unknown_delay_s * 1000)),
            unknown_grace_ms=str(int(self.settings.unknown_grace_s * 1000)), report=self._keeper.report_progress,
        )  # fmt: skip

    async def _work(self) -> None:
        scheduler = self._start_scheduler()
        reader = BlockingReader(self._link, self.id)
        helpers = [asyncio.create_task(self._read_when_idle(reader)), asyncio.create_task(self._listen_for_cancels())]
        if self.settings.burst:
            helpers.append(asyncio.create_task(self._stop_when_done()))
        _log.info("worker started id=%s queues=%s concurrency=%d", self.id, ",".join(self._card.queues),
                  self.settings.concurrency)
        try:
            await self._pump()
            await reader.close()
            await self._drain()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            if scheduler is not None:
                await asyncio.to_thread(scheduler.close)
            _log.info("worker stopped id=%s", self.id)

    def _start_scheduler(self) -> SchedulerThread | None:
        if not self.settings.scheduler:
            return None
        scheduler = SchedulerThread(self.app.url, self.app.namespace, SchedulerSettings(), self._recovered_from_thread)
        scheduler.start()
        return scheduler

    async def _close(self) -> None:
        await asyncio.to_thread(self._keeper.close)
        await self._async_lanes.close()
        if self._hook_tasks:
            await asyncio.gather(*self._hook_tasks, return_exceptions=True)
        await self.app.async_client.aclose()
        await self._link.aclose()

    # ---- joining

    async def _join(self) -> None:
        """Learn the partitions and make them ready; wait for the server unless told not to."""
        delays, said = backoff_delays(float("inf")), False
        while not self._stopping.is_set():
            try:
                await self._join_once()
                return
            except CredentialsRefused:
                raise
            except ConnectionFailed as error:
                if not self.settings.wait_for_server:
                    raise
                if not said:
                    _log.warning("waiting for the server: %s", error)
                said = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), next(delays))

    async def _join_once(self) -> None:
        registry = keys.queues(self.app.namespace)
        queues = dict(self.settings.queues)
        await self._link.execute([calls.command("HSETNX", registry, queue, 1, read=int) for queue in queues])
        counts = await self._link.execute([calls.command("HGET", registry, queue, read=int) for queue in queues])
        for (queue, weight), count in zip(queues.items(), counts, strict=True):
            for number in range(count):
                place = keys.partition(self.app.namespace, queue, number)
                self._posts.setdefault(place, Post(place, weight))
        tasks = [
            (task.name, DEFAULT_MAX_RETRIES if task.job_options.max_retries is None else task.job_options.max_retries)
            for task in self.app.tasks.values()
        ]
        await self._link.execute([calls.join(place, self.settings.lease_s, tasks) for place in self._posts])

    # ---- the pump: settle and claim

    async def _pump(self) -> None:
        while not self._stopping.is_set():
            await self._kick.wait()
            self._kick.clear()
            self._ended_since_kick = 0
            self._launch()

    def _launch(self) -> None:
        while len(self._in_flight) < MOST_IN_FLIGHT and not self._link_lost:
            posts = [post for post in self._posts.values() if post.outcomes]
            if self._in_flight and sum(len(post.outcomes) for post in posts) < self._half:
                return  # what ended meanwhile travels with the next call
            exchange = self._next_exchange()
            if not exchange:
                return
            task = self._loop.create_task(self._exchange(exchange))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    def _next_exchange(self) -> list[tuple[Post, list[Outcome], int]]:
        """Choose what to settle, and how the free slots are offered to the partitions."""
        claiming = not self._stopping.is_set() and self._keeper.is_trusted
        posts = [post for post in self._posts.values() if post.outcomes or (post.hot and claiming)]
        limits = self._share_slots(posts) if claiming else {}
        exchange = []
        for post in posts:
            limit = limits.get(post.place, 0)
            if post.outcomes or limit:
                outcomes, post.outcomes = post.outcomes[:MOST_CLAIMED], post.outcomes[MOST_CLAIMED:]
                exchange.append((post, outcomes, limit))
                self._free -= limit
        return exchange

    def _share_slots(self, posts: list[Post]) -> dict[Partition, int]:
        """Deal the free slots out by weight; who comes first changes, so that rounding favours none."""
        free, limits = self._free, {}
        self._turn += 1
        weight_left = sum(post.weight for post in posts)
        for index in range(len(posts)):
            post = posts[(index + self._turn) % len(posts)]
            share = min(MOST_CLAIMED, free, max(1, free * post.weight // weight_left)) if free > 0 else 0
            weight_left -= post.weight
            free -= share
            limits[post.place] = share
        return limits

    def _fair_turn(self, post: Post, limit: int) -> str:
        """Say which priority goes first for one slot, once in FAIR_SLOTS slots."""
        if limit == 0:
            return ""
        post.fair_credit += limit
        if post.fair_credit < FAIR_SLOTS:
            return ""
        post.fair_credit = 0
        self._turn += 1
        return str(1 + self._turn % 9)

    async def _exchange(self, parts: list[tuple[Post, list[Outcome], int]], delivered: list[Delivery] | None = None) -> None:
        """Settle and claim in one round trip, and start what was claimed."""
        sent = execution.now()
        entries = {delivery.place: delivery.entries for delivery in delivered or []}
        steps: list[Any] = [
            calls.claim(post.place, self.id, self._lease_ms, limit, "", entries[post.place])
            if post.place in entries
            else calls.finish(post.place, self.id, self._lease_ms, limit, self._fair_turn(post, limit), outcomes)
            for post, outcomes, limit in parts
        ]
        try:
            answers = await self._link.execute(steps)
        except RzschedError as error:
            self._take_back(parts)
            self._lose_link(error)
            return
        for (post, outcomes, limit), answer in zip(parts, answers, strict=True):
            claimed = answer if isinstance(answer, list) else self._settled(post, outcomes, answer)
            self._free += limit - len(claimed)
            post.hot = limit > 0 and len(claimed) >= limit
            if claimed:
                self._begin(post.place, claimed, sent)
        if self._free > 0:
            self._room.set()
        self._kick.set()

    def _take_back(self, parts: list[tuple[Post, list[Outcome], int]]) -> None:
        for post, outcomes, limit in parts:
            post.outcomes[:0] = outcomes
            post.hot = True
            self._free += limit

    # ---- settling

    def _settled(self, post: Post, outcomes: list[Outcome], answer: Finished) -> list[Claimed]:
        if answer.notes:
            for job_id, note in answer.notes.items():
                self._tell_note(post.place, job_id, note)
        return answer.claimed

    def _tell_note(self, place: Partition, job_id: str, note: str) -> None:
        if note == "STALE":
            _log.warning("stale finish refused: another run has taken over job=%s", job_id)
            self._emit("stale", job_id, place, error="another run has taken over")
        elif note == "LATE":
            _log.warning("finish accepted after the lease ran out job=%s", job_id)
        elif note == "DEAD":
            _log.error("job is dead job=%s: no worker knew its task", job_id)
            self._emit("dead", job_id, place, error="unknown task")

    # ---- running

    def _begin(self, place: Partition, claimed: Iterable[Claimed], sent: float) -> None:
        """Hand claimed jobs to the lanes; what cannot run becomes an outcome at once."""
        on_loop: list[Run] = []
        on_threads: list[Run] = []
        if execution.now() - sent >= self.settings.lease_s:
            self._drop_overdue(list(claimed))
            return
        runs = self._keeper.runs
        for one in claimed:
            run = execution.open_run(self._rules, place, one, sent)
            if not isinstance(run, Run):
                self._refuse(place, run)
                continue
            runs[run.id] = run
            if self._notify_started:
                self._emit("started", run.id, place, run)
            (on_loop if run.task.is_async else on_threads).append(run)
        if on_loop:
            self._async_lanes.put(on_loop)
        if on_threads:
            for run in on_threads:
                if run.policy.timeout_s is not None:
                    self._loop.call_later(run.policy.timeout_s, self._time_out, run)
            self._thread_lanes.put(on_threads)

    def _drop_overdue(self, claimed: list[Claimed]) -> None:
        """Start nothing whose lease may be over before it begins: this process stood still, others go on."""
        _log.warning("%d claimed jobs not started: their lease has run out", len(claimed))
        self._free += len(claimed)

    def _refuse(self, place: Partition, outcome: Outcome) -> None:
        _log.warning("job not run job=%s outcome=%s reason=%s", outcome[1], outcome[0], outcome[4])
        if outcome[0] == "DEAD":
            self._emit("dead", outcome[1], place, error=str(outcome[4]))
        self._add_outcome(place, outcome)

    def _run_ended(self, run: Run, result: Any, error: BaseException | None) -> None:
        """Turn the end of a run into an outcome, on the loop."""
        if run.ended:  # given up before: its outcome is settled, its slot is free only now
            self._free += 1
            return
        run.ended = True
        self._keeper.runs.pop(run.id, None)
        outcome = execution.ended(run, result, error, self.settings.error_limit)
        if outcome is None:
            _log.warning("run stopped: its lease is gone job=%s task=%s", run.id, run.task.name)
            self._free += 1
            self._ask_for_more()
            return
        if error is not None or self._notify_succeeded:
            self._tell_end(run, outcome, error)
        self._add_outcome(run.place, outcome)

    def _add_outcome(self, place: Partition, outcome: Outcome) -> None:
        self._posts[place].outcomes.append(outcome)
        self._free += 1
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        """Wake the pump once per half of the slots, or when nothing more is about to end by itself."""
        self._ended_since_kick += 1
        if self._ended_since_kick >= self._half or not (self._async_lanes.has_waiting or self._thread_lanes.has_waiting):
            self._kick.set()
            self._room.set()

    def _tell_end(self, run: Run, outcome: Outcome, error: BaseException | None) -> None:
        kind = outcome[0]
        if kind == "SUCCEEDED":
            self._emit("succeeded", run.id, run.place, run)
            return
        reason = str(outcome[4])
        if kind in {"RETRY", "DEAD"}:
            _log.warning("run failed job=%s task=%s attempt=%d outcome=%s error=%s", run.id, run.task.name, run.attempt,
                         kind.lower(), reason[:500], exc_info=error if _log.isEnabledFor(logging.DEBUG) else None)
            self._emit("failed", run.id, run.place, run, error=reason)
        if kind == "DEAD":
            self._emit("dead", run.id, run.place, run, error=reason)

    def _run_ended_on_thread(self, run: Run, result: Any, error: BaseException | None) -> None:
        """Pass the end of a run from its thread to the loop; the wake-up is what costs, so it is shared."""
        self._thread_ended.append((run, result, error))
        if not self._thread_wake and (not self._thread_lanes.has_waiting or len(self._thread_ended) >= self._half):
            self._thread_wake = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: this worker has handed the run back
                self._loop.call_soon_threadsafe(self._take_thread_ended)

    def _take_thread_ended(self) -> None:
        self._thread_wake = False
        ended = self._thread_ended
        while ended:
            self._run_ended(*ended.popleft())

    # ---- stopping a run

    def _stop_run_from_thread(self, run: Run, reason: str) -> None:
        if reason == LOST:
            run.context.lost.set()
        if reason == CANCEL:
            run.context.cancelled.set()
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing left to stop
            self._loop.call_soon_threadsafe(self._stop_run, run, reason)

    def _stop_run(self, run: Run, reason: str) -> None:
        """Ask a run to stop: an async handler is cancelled, a plain one sees it in its context."""
        if run.ended or (run.stop_reason and run.stop_reason != CANCEL):
            return
        run.stop_reason = reason
        (run.context.cancelled if reason == CANCEL else run.context.lost).set()
        if run.asyncio_task is not None:
            run.asyncio_task.cancel()

    def _time_out(self, run: Run) -> None:
        """Interrupt a plain handler that ran past its timeout; give it up when it does not heed that for a lease."""
        if run.ended or run.stop_reason:
            return
        run.stop_reason = TIMEOUT
        run.context.cancelled.set()
        self._thread_lanes.interrupt(run)
        self._loop.call_later(self.settings.lease_s, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        if run.ended:
            return
        _log.error("a plain handler goes on past its timeout: its slot is taken until it ends job=%s", run.id)
        self._run_ended(run, None, execution.RunGivenUp())
        self._free -= 1  # the thread is still busy with it

    # ---- being idle

    async def _read_when_idle(self, reader: BlockingReader) -> None:
        while not self._stopping.is_set():
            if not self._is_idle():
                self._room.clear()
                await self._room.wait()
                continue
            self._free -= 1
            try:
                deliveries = await reader.read(list(self._posts))
            except (RzschedError, GroupsGone) as error:
                self._free += 1
                await self._make_groups_again(error)
                continue
            self._free += 1
            if deliveries:
                await self._claim_delivered(deliveries)
            elif not self._stopping.is_set():
                self._kick.set()

    def _is_idle(self) -> bool:
        return (self._free >= 1 and not self._link_lost and self._keeper.is_trusted
                and not any(post.hot for post in self._posts.values()))  # fmt: skip

    async def _claim_delivered(self, deliveries: list[Delivery]) -> None:
        parts = []
        for delivery in deliveries:
            limit = min(max(self._free, 0), MOST_CLAIMED) if not self._stopping.is_set() else 0
            self._free -= limit
            parts.append((self._posts[delivery.place], [], limit))
        await self._exchange(parts, deliveries)

    async def _make_groups_again(self, error: Exception) -> None:
        if isinstance(error, GroupsGone):
            try:
                await self._join_once()
            except RzschedError as failure:
                self._lose_link(failure)
        elif isinstance(error, RzschedError):
            self._lose_link(error)

    # ---- losing the server

    def _lose_link(self, error: RzschedError) -> None:
        if not self._link_lost:
            self._link_lost = True
            _log.warning("the server is away: %s", error)
            self._spawn(self._regain_link())

    async def _regain_link(self) -> None:
        """Hand back what may have been claimed without our knowledge, as soon as the server answers again."""
        for delay in backoff_delays(float("inf")):
            await asyncio.sleep(delay)
            if self._in_flight - {asyncio.current_task()}:
                await asyncio.gather(*self._in_flight, return_exceptions=True)
            known: dict[Partition, list[str]] = {place: [] for place in self._posts}
            for run in list(self._keeper.runs.values()):
                known[run.place].append(run.id)
            for place, post in self._posts.items():
                known[place] += [outcome[1] for outcome in post.outcomes]
            try:
                await self._join_once()
                await self._link.execute([calls.release(place, self.id, ids) for place, ids in known.items()])
                break
            except ServerUnsuitable as error:
                _log.error("the server refuses: %s", error)
            except RzschedError:
                continue  # still away: said once when it went
        self._link_lost = False
        _log.info("the server is back")
        for post in self._posts.values():
            post.hot = True
        self._kick.set()

    # ---- hearing of cancelled jobs

    async def _listen_for_cancels(self) -> None:
        """Hear at once what the next renewal would tell anyway."""
        channel = keys.worker_channel(self.app.namespace, self.id)
        delays = backoff_delays(float("inf"))
        while True:
            try:
                connections = redis.asyncio.Redis(connection_pool=await self._link.pool())
                async with connections.pubsub(ignore_subscribe_messages=True) as listener:
                    await listener.subscribe(channel)
                    delays = backoff_delays(float("inf"))
                    while True:
                        message = await listener.get_message(timeout=5)
                        run = self._keeper.runs.get(message["data"].decode()) if message else None
                        if run is not None:
                            self._stop_run(run, CANCEL)
            except (redis.RedisError, OSError) as error:
                _log.debug("listening again for cancels: %s", type(error).__name__)
                await asyncio.sleep(next(delays))

    # ---- ending

    async def _stop_when_done(self) -> None:
        """Burst mode: stop once nothing is due, ready or running in any queue of this worker."""
        while not self._stopping.is_set():
            if not self._keeper.runs and not self._in_flight and await self._nothing_left():
                self.stop()
                return
            await asyncio.sleep(0.1)

    async def _nothing_left(self) -> bool:
        steps: list[Any] = [calls.command("TIME", read=lambda answer: int(answer[0]))]
        for place in self._posts:
            steps += [calls.measure(place), calls.command("ZRANGE", place.scheduled, 0, 0, "WITHSCORES", read=list)]
        try:
            now_s, *told = await self._link.execute(steps)
        except RzschedError:
            return False
        counts, firsts = told[::2], told[1::2]
        due = any(first and float(first[1]) <= (now_s + 1) * 1000 for first in firsts)
        return not due and all(count.ready + count.running == 0 for count in counts)

    async def _drain(self) -> None:
        """Let running jobs end in the time there is, hand the rest back, and leave."""
        waiting = self._async_lanes.take_waiting() + self._thread_lanes.take_waiting()
        for run in waiting:
            self._keeper.runs.pop(run.id, None)
            run.ended = True
            self._posts[run.place].outcomes.append(execution.released(run))
        await self._settle_until(self.settings.shutdown_timeout_s)
        for run in list(self._keeper.runs.values()):
            self._stop_run(run, SHUTDOWN)
        await self._settle_until(1.0 if self._keeper.runs else 0.0, every=True)
        for run in list(self._keeper.runs.values()):
            # A thread cannot be stopped from outside: the job goes back, its lock with it, so a late finish is refused.
            self._posts[run.place].outcomes.append(execution.released(run))
        self._keeper.runs.clear()
        await self._leave()

    async def _settle_until(self, limit_s: float, *, every: bool = False) -> None:
        """Settle what ends, for `limit_s` seconds or (unless `every`) until told to stop now."""
        end = time.monotonic() + limit_s
        while self._keeper.runs and time.monotonic() < end and (every or not self._stop_now.is_set()):
            self._kick.clear()
            self._launch()
            kicked, hurried = asyncio.ensure_future(self._kick.wait()), asyncio.ensure_future(self._stop_now.wait())
            await asyncio.wait({kicked} if every else {kicked, hurried}, timeout=end - time.monotonic(),
                               return_when=asyncio.FIRST_COMPLETED)
            kicked.cancel()
            hurried.cancel()

    async def _leave(self) -> None:
        """Settle what is left and hand back all that is pending here, in the time that a lease would take anyway."""
        for delay in backoff_delays(min(self.settings.lease_s, 5.0)):
            if self._in_flight:
                await asyncio.gather(*self._in_flight, return_exceptions=True)
            steps: list[Any] = []
            for post in self._posts.values():
                if post.outcomes:
                    steps.append(calls.finish(post.place, self.id, self._lease_ms, 0, "", post.outcomes))
                steps.append(calls.release(post.place, self.id, leave=True))
            try:
                await self._link.execute(steps)
                return
            except RzschedError as error:
                _log.warning("leaving is delayed: %s", error)
            await asyncio.sleep(delay)
        _log.error("left without the server: other workers recover this one's jobs when their leases end")

    # ---- hooks and threads

    def _emit(self, kind: Event, job_id: str, place: Partition, run: Run | None = None, error: str | None = None) -> None:
        if not self.app.hooks[kind]:
            return
        event = JobEvent(kind=kind, job_id=job_id, task=run.task.name if run else "", queue=place.queue,
                         attempt=run.attempt if run else 0, worker=self.id, error=error)
        for pending in self.app.emit(event):
            self._spawn(_quietly(pending, kind))

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._hook_tasks.add(task)
        task.add_done_callback(self._hook_tasks.discard)

    def _wake_from_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._kick.set)
            self._loop.call_soon_threadsafe(self._room.set)

    def _recovered_from_thread(self, place: Partition, found: Recovered) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._tell_recovered, place, found)

    def _tell_recovered(self, place: Partition, found: Recovered) -> None:
        self._emit("recovered", found.id, place, error=f"worker lost: {found.worker}")
        if found.what == "DEAD":
            self._emit("dead", found.id, place, error="worker lost")


async def _quietly(pending: Awaitable[Any], kind: str) -> None:
    try:
        await pending
    except Exception:
        _log.exception("a %s hook failed", kind)


def run_worker(app: App, settings: WorkerSettings, worker_id: str | None = None) -> int:
    """Run a worker until a signal (or the end of a burst); give the exit code.

    Raises ConnectionFailed with `wait_for_server` off or for refused credentials, ServerUnsuitable.
    """
    worker = asyncio.run(_serve(app, settings, worker_id))
    if worker.has_busy_threads:
        # Plain handlers that were handed back may run on; the interpreter would wait for nothing, but end late.
        logging.shutdown()
        os._exit(0)
    return 0


async def _serve(app: App, settings: WorkerSettings, worker_id: str | None) -> Worker:
    worker = Worker(app, settings, worker_id)
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
    await worker.run()
    return worker
