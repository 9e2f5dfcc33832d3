"""The producer's client for asyncio: the same operations; calls made in one turn of the loop travel together."""

import asyncio
import math
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import redis
import redis.asyncio

from rzsched import calls, dead_letters, limits, operations, schedules
from rzsched.calls import Enqueued
from rzsched.client import BROKEN_S, WATCH_S, client_settings, outcome
from rzsched.config import DEFAULT_NAMESPACE, DEFAULT_URL, ClientSettings, Durability, Seconds, seconds
from rzsched.connect import LinkSettings
from rzsched.durability import Durably, Kept, Wait
from rzsched.errors import JobNotFound
from rzsched.exchange import Step, Write
from rzsched.job import Prepared
from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink, async_link
from rzsched.listening import SUBSCRIBE_S
from rzsched.refusals import TRANSPORT, own_copy, translate
from rzsched.space import Plan, Space
from rzsched.urls import check_url, is_cluster

P = ParamSpec("P")
T = TypeVar("T")
MOST_IN_FLIGHT = 4
"""Round trips under way at once; what is asked meanwhile travels together in the next one."""


def _async(
    operation: Callable[Concatenate[Space, P], Plan[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(operation(self.space, *args, **kwargs))

    return method


Letter = tuple[Step, "asyncio.Future[Any]"]


class Postman:
    """Carry the calls of many tasks over few round trips.

    Each round trip is a task of its own, so a caller that is cancelled leaves no reply behind: its future is
    simply not there any more when the answer comes. Each caller gets its own answer or its own error.
    What waits to be durable has a postman of its own for each kind of wait: it shares its trips, and so its waits, with
    its like, and nobody else is behind them.
    """

    def __init__(self, link: AnyAsyncLink, chunk: int) -> None:
        self.link = link
        self._chunk = chunk
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Letter] = []
        self._in_flight: set[asyncio.Task[None]] = set()
        self._due = False
        self._waiters: dict[Wait, Postman] = {}

    def post(self, step: Step) -> "asyncio.Future[Any]":
        if not isinstance(step, Durably):
            return self._post(step)
        waiter = self._waiters.get(step.wait)
        if waiter is None:
            waiter = self._waiters[step.wait] = Postman(self.link, self._chunk)
        return waiter._post(step)

    def _post(self, step: Step) -> "asyncio.Future[Any]":
        future = self._loop.create_future()
        self._waiting.append((step, future))
        if not self._due and len(self._in_flight) < MOST_IN_FLIGHT:
            self._due = True
            self._loop.call_soon(self._depart)
        return future

    def _depart(self) -> None:
        """Send what waits; a crowd in several trips, so that the server works on one while the next is packed."""
        self._due = False
        while self._waiting and len(self._in_flight) < MOST_IN_FLIGHT:
            last_trip = len(self._in_flight) == MOST_IN_FLIGHT - 1
            most = len(self._waiting) if last_trip else self._chunk // 2
            letters, self._waiting = self._waiting[:most], self._waiting[most:]
            task = self._loop.create_task(self._carry(letters))
            self._in_flight.add(task)
            task.add_done_callback(self._arrived)

    def _arrived(self, task: "asyncio.Task[None]") -> None:
        self._in_flight.discard(task)
        if self._waiting and not self._due:
            self._depart()

    async def _carry(self, letters: list[Letter]) -> None:
        steps, readers = _joined(letters, self._chunk)
        try:
            outcomes = await self.link.outcomes(steps)
        except Exception as error:
            outcomes = [error] * len(steps)
        except BaseException:
            for _, future in letters:
                future.cancel()
            raise
        for answer, futures in zip(outcomes, readers, strict=True):
            _deliver(answer, futures)

    async def aclose(self) -> None:
        for postman in (self, *self._waiters.values()):
            await postman._finish()
        await self.link.aclose()

    async def _finish(self) -> None:
        while self._waiting or self._in_flight:
            self._depart()
            await asyncio.gather(*self._in_flight, return_exceptions=True)


Readers = list[tuple["asyncio.Future[Any]", int]]
"""Who reads an answer; for a write, with how many of its jobs are theirs."""


def _joined(letters: list[Letter], chunk: int) -> tuple[list[Step], list[Readers]]:
    """Join writes into one partition to one call; remember whose part of its answer is whose."""
    steps: list[Step] = []
    readers: list[Readers] = []
    open_writes: dict[Partition, tuple[list[Prepared], Readers]] = {}
    for step, future in letters:
        write = step.step if isinstance(step, Durably) else step
        if not isinstance(write, Write):
            steps.append(step)
            readers.append([(future, 0)])
            continue
        place, jobs = write
        found = open_writes.get(place)
        if found is None or len(found[0]) + len(jobs) > chunk:
            found = open_writes[place] = ([], [])
            joined = Write(place, found[0])
            steps.append(replace(step, step=joined) if isinstance(step, Durably) else joined)
            readers.append(found[1])
        found[0].extend(jobs)
        found[1].append((future, len(jobs)))
    return steps, readers


def _deliver(outcome: Any, readers: Readers) -> None:
    first = 0
    for future, count in readers:
        if future.done():
            pass
        elif isinstance(outcome, Exception):
            future.set_exception(own_copy(outcome))
            future.exception()  # a caller that is cancelled at this moment will not fetch it
        elif isinstance(outcome, Kept) and count:
            future.set_result(Kept(_part(outcome.answer, first, count), outcome.lack))
        elif count:
            future.set_result(_part(outcome, first, count))
        else:
            future.set_result(outcome)
        first += count


def _part(written: Enqueued, first: int, count: int) -> Enqueued:
    return Enqueued(written.ids[first : first + count], written.fresh)


class AsyncClient:
    """Schedule jobs and look after them from asyncio; the methods are `Client`'s, to be awaited.

    One client may serve several loops, one after the other or in threads; each has its own connections.
    """

    def __init__(self, url: str | None = None, namespace: str = DEFAULT_NAMESPACE, *,
                 durability: Durability | None = None, settings: ClientSettings | None = None) -> None:
        chosen = client_settings(namespace, durability, settings)
        self._url = url or os.environ.get("RZSCHED_URL") or DEFAULT_URL
        self._link_settings = LinkSettings(chosen.connect_timeout_s, chosen.command_timeout_s,
                                           check_fitness=chosen.check_server)
        check_url(self._url)  # here, not at the first call
        self.space = Space(chosen, is_spread=is_cluster(self._url))
        self._postmen: dict[asyncio.AbstractEventLoop, tuple[int, Postman]] = {}

    @property
    def postman(self) -> Postman:
        """The loop's own; a forked child must not use its parent's."""
        loop = asyncio.get_running_loop()
        found = self._postmen.get(loop)
        if found is None or found[0] != os.getpid():
            for other in list(self._postmen):
                if other.is_closed():  # a loop that ended without `aclose`: let its connections go with it
                    self._postmen.pop(other, None)
            found = (os.getpid(), Postman(async_link(self._url, self._link_settings), self.space.settings.chunk))
            self._postmen[loop] = found
        return found[1]

    async def run(self, plan: Plan[T]) -> T:
        post = self.postman.post
        try:
            steps = next(plan)
            while True:
                if len(steps) == 1:
                    answers = [await post(steps[0])]
                elif steps:
                    answers = list(await asyncio.gather(*map(post, steps)))
                else:
                    await asyncio.sleep(0)
                    answers = []
                steps = plan.send(answers)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    schedule_job = _async(operations.schedule_job)
    schedule_many = _async(operations.schedule_many)
    schedule = _async(operations.schedule)
    cancel_job = _async(operations.cancel_job)
    get_job_status = _async(operations.get_job_status)
    list_dead = _async(dead_letters.list_dead)
    replay_dead = _async(dead_letters.replay_dead)
    purge_dead = _async(dead_letters.purge_dead)
    pause = _async(limits.pause)
    resume = _async(limits.resume)
    configure_queue = _async(limits.configure_queue)
    queue_stats = _async(operations.queue_stats)
    queues = _async(operations.queues)
    workers = _async(operations.workers)
    schedule_cron = _async(schedules.schedule_cron)
    list_crons = _async(schedules.list_crons)
    get_cron = _async(schedules.get_cron)
    pause_cron = _async(schedules.pause_cron)
    resume_cron = _async(schedules.resume_cron)
    trigger_cron = _async(schedules.trigger_cron)
    remove_cron = _async(schedules.remove_cron)
    backfill_cron = _async(schedules.backfill_cron)

    async def wait(self, job_id: str, timeout: Seconds | None = None) -> Any:
        """Wait for a job to end and give its result; `timeout` in seconds, None waits for ever.

        Raises JobFailed when it ends DEAD, JobCancelled, TimeoutError, JobNotFound. A connection of its own is held
        meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + seconds(timeout, "timeout")
        place = self.space.place_of(job_id)
        while not await self._has_ended(place, job_id):
            now = loop.time()
            if now >= deadline:
                raise TimeoutError(f"job {job_id} has not ended in time")
            try:
                await self._listen(place, job_id, min(deadline, now + WATCH_S))
            except TRANSPORT:
                await asyncio.sleep(BROKEN_S)  # the next look finds out whether the server is still there
            except redis.RedisError as error:
                raise translate(error, self.postman.link.where) from None
        return outcome(await self.get_job_status(job_id))

    async def _has_ended(self, place: Partition, job_id: str) -> bool:
        """Look, and have the end announced if it is still to come."""
        state = await self.postman.post(calls.watch(place, job_id, WATCH_S * 2))
        if state == "NOT_FOUND":
            raise JobNotFound(job_id)
        return bool(state == "ENDED")

    async def _listen(self, place: Partition, job_id: str, until: float) -> None:
        """Return when the job ended, or when it is time to look again."""
        loop = asyncio.get_running_loop()
        pool = await self.postman.link.listener_pool()
        listener = redis.asyncio.Redis(connection_pool=pool).pubsub()
        try:
            async with asyncio.timeout(SUBSCRIBE_S):
                await listener.subscribe(place.ended_channel)
            while (left := until - loop.time()) > 0:
                message = await listener.get_message(timeout=left)
                if message is None:
                    continue
                # From the confirmation on nothing escapes; what ended before it is found by one more look.
                if message["type"] == "subscribe" and await self._has_ended(place, job_id):
                    return
                if message["data"] == job_id.encode():
                    return
        finally:
            await listener.aclose()  # type: ignore[no-untyped-call]

    async def aclose(self) -> None:
        _, postman = self._postmen.pop(asyncio.get_running_loop(), (0, None))
        if postman is not None:
            await postman.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()
