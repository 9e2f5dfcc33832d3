"""The scheduler: move due jobs to their ready streams, fire schedules, take back what dead workers hold, and prune.

Any number of schedulers may run. Moving is atomic, so two of them can never double a job; the lease of a partition
(`SET NX EX` with the owner's token) merely stops them polling it twice. The live ones share the partitions evenly:
each computes the same shares from the same sorted lists. One that dies is missing from the list when its
heartbeat runs out, and its partitions' leases with it.

A scheduler sleeps until the earliest due instant by a timer of its own, since a blocking read on the server would wake
it up to 100 ms late, and is woken through a channel when something earlier arrives.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Any

import redis

from rzsched import calls, keys
from rzsched.calls import Attendance, Promotion
from rzsched.config import SchedulerSettings
from rzsched.connect import LinkSettings, backoff_delays
from rzsched.due_wait import DueWait
from rzsched.endings import end_tasks
from rzsched.errors import ConnectionFailed, RzschedError, ServerUnsuitable
from rzsched.firing import Firer, Watch
from rzsched.herd import Herd
from rzsched.keys import Partition
from rzsched.layout import read_registry
from rzsched.links import async_link
from rzsched.listening import Deafness, Listener, listening
from rzsched.members import new_member_id, share_of
from rzsched.offers import Ask, Asking, Filling
from rzsched.refusals import CredentialsRefused, OutOfMemory
from rzsched.sweeping import Notice, Sweeper
from rzsched.troubles import Troubles

_log = logging.getLogger("rzsched.scheduler")
BREAK_S = 1.5
"""A look at a partition that comes so much later than it should: this process stood still, or the server was away."""
ANSWER_S = 5.0
"""What a scheduler asks takes some ms, however busy the server is: a longer silence is a dead connection."""


def is_lasting(error: Exception) -> bool:
    return isinstance(error, CredentialsRefused | ServerUnsuitable) and not isinstance(error, OutOfMemory)


def is_fire_due(promotion: Promotion) -> bool:
    return promotion.next_fire_ms is not None and promotion.next_fire_ms * 1000 <= promotion.now_us


@dataclass(slots=True, eq=False)
class _Post:
    """This scheduler's work on one partition."""

    place: Partition
    asking: Asking
    wait: DueWait
    holds_lease: bool = False
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)


class Scheduler:
    """Serve a share of the partitions until stopped.

    `notice` is called for each job taken back from a dead worker, `ask` gives an idle worker's slots for due jobs.
    """

    def __init__(self, url: str, namespace: str, settings: SchedulerSettings, *, notice: Notice | None = None,
                 ask: Ask | None = None) -> None:
        self.id = new_member_id()
        self._namespace = namespace
        self._settings = settings
        self._notice = notice
        self._ask = ask
        self._link = async_link(url, LinkSettings(command_timeout_s=ANSWER_S, retry_s=0, max_connections=32))
        self._posts: dict[Partition, _Post] = {}
        self._stopping = asyncio.Event()
        self._regroup = asyncio.Event()
        self._regroup_channel = keys.regroup_channel(namespace)
        self._listener: Listener | None = None
        self._troubles = Troubles(_log, "scheduler")
        self._has_served = False
        self._watch = Watch(settings.idle_s + BREAK_S)
        self._rearranging: asyncio.Task[None] | None = None

    def stop(self) -> None:
        self._stopping.set()
        self._regroup.set()
        if self._rearranging is not None:
            self._rearranging.cancel()  # it may wait for a server that stands still

    async def run(self) -> None:
        """Serve until `stop`; a server that is away is waited for, and said so once.

        Raises CredentialsRefused or ServerUnsuitable where that is so from the start.
        """
        listening = asyncio.create_task(self._listen())
        delays = backoff_delays()
        try:
            while not self._stopping.is_set():
                try:
                    await self._rearrange_unless_stopped()
                    delays = backoff_delays()
                    rest_s = self._settings.lease_s / 3
                    self._has_served = True
                    self._troubles.went_well("")
                except Exception as error:
                    if not self._has_served and is_lasting(error):
                        raise  # waiting would not make the server or the password another one
                    self._troubles.failed("", error)
                    rest_s = next(delays)
                await self._sleep(rest_s)
        finally:
            await end_tasks([listening])
            # A server that stands still must not keep the process: what a scheduler holds runs out by itself.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.lease_s):
                    await self._leave()
            await self._link.aclose()

    async def _sleep(self, seconds: float) -> None:
        """Sleep until it is time, another scheduler has left, or this one shall stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._regroup.wait(), seconds)
        self._regroup.clear()

    # ---- which partitions are mine

    async def _rearrange_unless_stopped(self) -> None:
        self._rearranging = asyncio.create_task(self._rearrange())
        try:
            await asyncio.wait({self._rearranging})
        finally:
            self._rearranging.cancel()
        if not self._rearranging.cancelled():
            self._rearranging.result()

    async def _rearrange(self) -> None:
        attendance: Attendance
        attendance, places = await self._link.execute([
            calls.attend(keys.schedulers(self._namespace), self.id, self._settings.lease_s),
            calls.command("HGETALL", keys.queues(self._namespace), read=self._read_places),
        ])  # fmt: skip
        mine = set(share_of(self.id, attendance.ids, places))
        for place in self._posts.keys() - mine:
            await self._give_up(self._posts.pop(place))
        for place in mine - self._posts.keys():
            await self._take_on(place)

    def _read_places(self, answer: Any) -> list[Partition]:
        names = self._settings.queues
        counts = read_registry(answer)
        if names is not None:
            counts = {name: counts.get(name, 1) for name in names}
        return [
            keys.partition(self._namespace, name, number) for name, count in counts.items() for number in range(count)
        ]

    async def _take_on(self, place: Partition) -> None:
        asking = Asking(place, self._ask)
        post = self._posts[place] = _Post(place, asking, DueWait(self._settings.idle_s, asking))
        if self._listener is not None:
            with contextlib.suppress(redis.RedisError, OSError):  # the listening loop sees the same and starts again
                await self._listener.subscribe(place.wake_channel)
        post.tasks = [asyncio.create_task(self._promote(post)), asyncio.create_task(self._sweep(post))]

    async def _give_up(self, post: _Post) -> None:
        await end_tasks(post.tasks)
        post.asking.end()
        # Whatever the last answer said: a promotion cut short may have taken the lease.
        with contextlib.suppress(RzschedError):  # else the lease runs out by itself
            await self._link.execute([
                calls.resign(post.place, self.id),
                # The next owner may wait for this one's lease to end.
                calls.publish(post.place.wake_channel, 0),
            ])  # fmt: skip
        if self._listener is not None:
            with contextlib.suppress(redis.RedisError, OSError):
                await self._listener.unsubscribe(post.place.wake_channel)

    async def _leave(self) -> None:
        for post in self._posts.values():
            await self._give_up(post)
        registry = keys.schedulers(self._namespace)
        with contextlib.suppress(RzschedError):  # else the heartbeat runs out by itself
            await self._link.execute([
                calls.attend(registry, self.id),
                calls.publish(self._regroup_channel, self.id),
            ])  # fmt: skip

    # ---- what is due

    async def _promote(self, post: _Post) -> None:
        delays = backoff_delays()
        settings, firer = self._settings, Firer(self._link, self._namespace, post.place)
        loop = asyncio.get_running_loop()
        fires: list[calls.Call[Any]] = []
        herd = Herd(settings.batch)
        while True:
            try:
                post.wait.looking()
                fired, promotion = await self._look(post, fires, herd)
                fires = []
                post.holds_lease = not promotion.held_by
                answered_s, herd_s = loop.time(), herd.looked(promotion)
                post.wait.looked(promotion, has_fired=bool(fired))
                grace_ms = self._watch.looked(answered_s)
                await firer.settle(fired)
                if is_fire_due(promotion):
                    fires = await firer.due_calls(promotion.now_us // 1000, grace_ms)
                    continue
            except Exception as error:  # RzschedError, or what a foreign hand put where it does not belong
                self._troubles.failed(post.place.name, error)
                post.asking.end()
                await asyncio.sleep(next(delays))
                continue
            self._troubles.went_well(post.place.name)
            delays = backoff_delays()
            if herd_s is not None:
                await asyncio.sleep(herd_s)
                continue
            await post.wait.until_due(promotion)
            if post.holds_lease:
                # The server's clock is at least here: it was read before its answer came.
                server_ms = int(promotion.now_us / 1000 + (loop.time() - answered_s) * 1000)
                fires = firer.known_calls(server_ms, self._watch.looked(loop.time()))

    async def _look(self, post: _Post, fires: list[calls.Call[Any]], herd: Herd) -> tuple[list[Any], Promotion]:
        """Fire and promote; give what became of each firing, and the last promotion."""
        settings, offer = self._settings, post.asking.take()
        if offer is None:
            promote = calls.promote(post.place, self.id, settings.lease_s, herd.limit)
            *answers, promotion = await self._link.execute([*fires, *[promote] * herd.turns])
            return answers[: len(fires)], promotion
        sent = time.monotonic()
        filling: Filling | Exception = ConnectionFailed("the scheduler's look was cut short")
        promote_claim = calls.promote_claim(post.place, self.id, settings.lease_s, herd.limit,
                                            offer.worker, offer.lease_ms, offer.slots)
        try:
            *fired, (promotion, claims) = await self._link.execute([*fires, promote_claim])
            filling = claims, sent
        except Exception as error:
            filling = error
            raise
        finally:
            offer.settle(filling)
        return fired, promotion

    async def _listen(self) -> None:
        """Hear of jobs that are earlier than what a post waits for. What is missed while away, `idle_s` bounds."""
        delays, deafness = backoff_delays(), Deafness(_log, self._link.where)
        while True:
            try:
                async with listening(self._link) as listener:
                    await listener.subscribe(self._regroup_channel)
                    self._listener = listener
                    await self._subscribe_all(listener)
                    delays = backoff_delays()
                    while True:
                        message = await listener.next()
                        if message is not None:
                            self._hear(message)
            except (redis.RedisError, OSError, RzschedError) as error:
                self._listener = None
                deafness.failed(error)
                await asyncio.sleep(next(delays))

    async def _subscribe_all(self, listener: Listener) -> None:
        channels = [place.wake_channel for place in self._posts]
        if channels:
            await listener.subscribe(*channels)
        for post in self._posts.values():
            post.wait.wake()

    def _hear(self, message: dict[str, Any]) -> None:
        channel = message["channel"].decode()
        if channel == self._regroup_channel:
            self._regroup.set()
            return
        earliest = float(message["data"])
        for post in self._posts.values():
            if post.place.wake_channel == channel:
                post.wait.hear(earliest)

    # ---- what was lost

    async def _sweep(self, post: _Post) -> None:
        """Sweep every `idle_s`."""
        sweeper = Sweeper(self._link, self._namespace, self._settings, post.place, self._notice)
        swept = f"the sweep of {post.place.name}"
        while True:
            try:
                if post.holds_lease:
                    await sweeper.sweep()
                    self._troubles.went_well(swept)
            except Exception as error:
                self._troubles.failed(swept, error)
            await asyncio.sleep(self._settings.idle_s)
