"""The producer's client for plain Python: it runs each operation of `operations` over a blocking connection."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import redis

from rzsched import calls, dead_letters, limits, operations, schedules
from rzsched.config import DEFAULT_NAMESPACE, DEFAULT_URL, ClientSettings, Durability, Seconds, seconds
from rzsched.connect import LinkSettings
from rzsched.errors import JobCancelled, JobFailed, JobNotFound
from rzsched.job import JobStatus, State
from rzsched.keys import Partition
from rzsched.links import AnySyncLink, sync_link
from rzsched.patience import pause
from rzsched.refusals import TRANSPORT, translate
from rzsched.space import Plan, Space

P = ParamSpec("P")
T = TypeVar("T")
WATCH_S = 5.0
"""How long a waiter trusts the server to tell it, before it looks again."""
BROKEN_S = 0.1


def client_settings(namespace: str, durability: Durability | None, settings: ClientSettings | None) -> ClientSettings:
    settings = settings or ClientSettings(namespace=namespace)
    return settings if durability is None else replace(settings, durability=durability)


def outcome(status: JobStatus) -> Any:
    """Give the result of a job that ended well; raise what the end of another one means to a waiter."""
    if status.state is State.DEAD:
        raise JobFailed(status.id, status.last_error or "")
    if status.state is State.CANCELLED:
        raise JobCancelled(status.id, status.last_error or "")
    return status.result


def _sync(operation: Callable[Concatenate[Space, P], Plan[T]]) -> Callable[Concatenate["Client", P], T]:
    @wraps(operation)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(operation(self.space, *args, **kwargs))

    return method


class Client:
    """Schedule jobs and look after them. It needs no task code: a task's name or a task will do.

    Threads may share a client, and a forked child may go on using its parent's. Connections are made when
    they are first needed. `durability` is what the calls wait for that don't say their own.
    """

    def __init__(self, url: str | None = None, namespace: str = DEFAULT_NAMESPACE, *,
                 durability: Durability | None = None, settings: ClientSettings | None = None) -> None:
        chosen = client_settings(namespace, durability, settings)
        self._link = sync_link(
            url or os.environ.get("RZSCHED_URL") or DEFAULT_URL,
            LinkSettings(chosen.connect_timeout_s, chosen.command_timeout_s, check_fitness=chosen.check_server),
        )
        self.space = Space(chosen, is_spread=self._link.apart)

    def run(self, plan: Plan[T]) -> T:
        try:
            steps = next(plan)
            while True:
                steps = plan.send(self._link.execute(steps) if steps else [])
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    @property
    def link(self) -> AnySyncLink:
        return self._link

    schedule_job = _sync(operations.schedule_job)
    schedule_many = _sync(operations.schedule_many)
    schedule = _sync(operations.schedule)
    cancel_job = _sync(operations.cancel_job)
    get_job_status = _sync(operations.get_job_status)
    list_dead = _sync(dead_letters.list_dead)
    replay_dead = _sync(dead_letters.replay_dead)
    purge_dead = _sync(dead_letters.purge_dead)
    pause = _sync(limits.pause)
    resume = _sync(limits.resume)
    configure_queue = _sync(limits.configure_queue)
    queue_stats = _sync(operations.queue_stats)
    queues = _sync(operations.queues)
    workers = _sync(operations.workers)
    schedule_cron = _sync(schedules.schedule_cron)
    list_crons = _sync(schedules.list_crons)
    get_cron = _sync(schedules.get_cron)
    pause_cron = _sync(schedules.pause_cron)
    resume_cron = _sync(schedules.resume_cron)
    trigger_cron = _sync(schedules.trigger_cron)
    remove_cron = _sync(schedules.remove_cron)
    backfill_cron = _sync(schedules.backfill_cron)

    def wait(self, job_id: str, timeout: Seconds | None = None) -> Any:
        """Wait for a job to end and give its result; `timeout` in seconds, None waits for ever.

        Raises JobFailed when it ends DEAD, JobCancelled, TimeoutError, JobNotFound. A connection of its own is held
        meanwhile.
        """
        deadline = math.inf if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        place = self.space.place_of(job_id)
        while not self._has_ended(place, job_id):
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError(f"job {job_id} has not ended in time")
            try:
                self._listen(place, job_id, min(deadline, now + WATCH_S))
            except TRANSPORT:
                pause(BROKEN_S)  # the next look finds out whether the server is still there
            except redis.RedisError as error:
                raise translate(error, self._link.where) from None
        return outcome(self.get_job_status(job_id))

    def _has_ended(self, place: Partition, job_id: str) -> bool:
        """Look, and have the end announced if it is still to come."""
        (state,) = self._link.execute([calls.watch(place, job_id, WATCH_S * 2)])
        if state == "NOT_FOUND":
            raise JobNotFound(job_id)
        return bool(state == "ENDED")

    def _listen(self, place: Partition, job_id: str, until: float) -> None:
        """Return when the job ended, or when it is time to look again."""
        listener = redis.Redis(connection_pool=self._link.listener_pool()).pubsub()  # type: ignore[no-untyped-call]
        try:
            listener.subscribe(place.ended_channel)
            while (left := until - time.monotonic()) > 0:
                message = listener.get_message(timeout=left)
                if message is None:
                    continue
                # From the confirmation on nothing escapes; what ended before it is found by one more look.
                if message["type"] == "subscribe" and self._has_ended(place, job_id):
                    return
                if message["data"] == job_id.encode():
                    return
        finally:
            listener.close()

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
