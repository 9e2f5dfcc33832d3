"""What a worker hears of its queues: it joins their partitions, also those that a queue gets later, and listens.

A queue that grew is told of on the regroup channel; who misses that looks every LAYOUT_S.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

import redis

from rzsched import calls, keys, layout
from rzsched.app import App
from rzsched.config import WorkerSettings
from rzsched.connect import backoff_delays
from rzsched.declaring import declare_again, declare_schedules
from rzsched.errors import RzschedError
from rzsched.job import DEFAULT_MAX_RETRIES
from rzsched.keys import Partition
from rzsched.layout import Layout
from rzsched.links import AnyAsyncLink
from rzsched.listening import Deafness, Listener, listening
from rzsched.pump import Pump

_log = logging.getLogger("rzsched.worker")


class Joiner:
    """Join the partitions of a worker's queues for its pump.

    `cancel` is told of a job that somebody asked to stop; `ask_for_cancels` has it looked for what nobody heard of.
    """

    def __init__(self, app: App, settings: WorkerSettings, worker: str, link: AnyAsyncLink, *,
                 cancel: Callable[[str], None], ask_for_cancels: Callable[[], None]) -> None:
        self._app = app
        self._settings = settings
        self._link = link
        self._cancel = cancel
        self._ask_for_cancels = ask_for_cancels
        self._cancel_channel = keys.worker_channel(app.namespace, worker)
        self._regroup_channel = keys.regroup_channel(app.namespace)
        self._layouts: dict[str, Layout] = {}
        self._look = asyncio.Event()
        self._listener: Listener | None = None
        self._declared = False
        self.pump: Pump

    # ---- joining

    async def join(self, places: Iterable[Partition] = ()) -> None:
        """Make the queues known, and ready what is new of their partitions, beside those that are named."""
        # A server that has forgotten its registry is told what this worker knows.
        known = [(queue, self._layouts.get(queue)) for queue, _ in self._settings.queues]
        await self._take_on([
            layout.grow(self._app.namespace, queue, found.partitions if found else 1, found.keyed if found else None)
            for queue, found in known
        ], list(places))  # fmt: skip
        await (declare_again if self._declared else declare_schedules)(self._app)
        self._declared = True

    async def _take_on(self, steps: list[calls.Call[Layout]], again: list[Partition]) -> None:
        found = await self._link.execute(steps)
        queues = dict(self._settings.queues)
        self._layouts.update(zip(queues, found, strict=True))
        places = [
            keys.partition(self._app.namespace, queue, number)
            for queue in queues for number in range(self._layouts[queue].partitions)
        ]  # fmt: skip
        new = [place for place in places if place not in self.pump.posts]
        await self._make_ready(new + again)
        for place in new:
            self.pump.add(place, queues[place.queue])
        if new and self._listener is not None:
            with contextlib.suppress(redis.RedisError, OSError):  # the listening loop sees the same and starts again
                await self._listener.subscribe(*(place.gate_channel for place in new))

    async def _make_ready(self, places: list[Partition]) -> None:
        tasks = [
            (task.name, DEFAULT_MAX_RETRIES if task.job_options.max_retries is None else task.job_options.max_retries)
            for task in self._app.tasks.values()
        ]
        if places:
            await self._link.execute([calls.join(place, self._settings.lease_s, tasks) for place in places])

    async def watch(self) -> None:
        """Join what the queues get while they are in use."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(layout.LAYOUT_S):
                    await self._look.wait()
            self._look.clear()
            try:
                found = await self._link.execute([
                    layout.look(self._app.namespace, queue) for queue, _ in self._settings.queues
                ])  # fmt: skip
                known = [self._layouts[queue].partitions for queue, _ in self._settings.queues]
                if [each and each.partitions for each in found] != known:
                    await self.join()
            except RzschedError as error:
                _log.debug("looking for partitions again: %s", error)

    # ---- hearing

    async def listen(self) -> None:
        """Hear of cancels, of gates and of growth at once: the next renewal, or the next look, would tell anyway."""
        delays, deafness = backoff_delays(), Deafness(_log, self._link.where)
        while True:
            try:
                async with listening(self._link, self._ask_for_cancels) as listener:
                    self._listener = listener
                    await listener.subscribe(self._cancel_channel, self._regroup_channel,
                                             *(place.gate_channel for place in self.pump.posts))
                    self.pump.look_at_all()
                    self._look.set()
                    delays = backoff_delays()
                    while True:
                        message = await listener.next()
                        if message:
                            self._hear(message["channel"].decode(), message["data"].decode("utf-8", "replace"))
            except (redis.RedisError, OSError, RzschedError) as error:
                self._listener = None
                deafness.failed(error)
                await asyncio.sleep(next(delays))

    def _hear(self, channel: str, word: str) -> None:
        if channel == self._cancel_channel:
            self._cancel(word)
        elif channel != self._regroup_channel:
            self.pump.hear_gate(channel, word)
        elif word == layout.CHANGED:
            self._look.set()
