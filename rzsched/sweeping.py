"""Sweeping a partition: what dead workers hold goes back, schedules are armed again, what nobody needs is pruned."""

import asyncio
import logging
from collections.abc import Callable

from rzsched import calls, cron_calls, growth
from rzsched.calls import Recovered
from rzsched.config import SchedulerSettings
from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink
from rzsched.recovery import recover
from rzsched.space import Plan
from rzsched.status import whole

_log = logging.getLogger("rzsched.scheduler")
PRUNE_EVERY_S = 5.0
DEFAULT_LEASE_MS = 15_000
Notice = Callable[[Partition, Recovered], None]


class Sweeper:
    """Sweep one partition whenever told to; `notice` is called for each job taken back from a dead worker."""

    def __init__(self, link: AnyAsyncLink, namespace: str, settings: SchedulerSettings, place: Partition,
                 notice: Notice | None) -> None:
        self._link = link
        self._namespace = namespace
        self._settings = settings
        self._place = place
        self._notice = notice
        self._prune_at = 0.0

    async def sweep(self) -> None:
        """Look for lost runs, and prune now and then."""
        await self._recover()
        await self._link.execute([cron_calls.rearm(self._place)])
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._prune_at:
            settings = self._settings
            await self._link.execute([calls.prune(self._place, settings.consumer_idle_s, settings.dead_limit)])
            self._prune_at = now_s + PRUNE_EVERY_S

    async def _recover(self) -> None:
        lease_ms, held = await self._link.execute([
            calls.command("HGET", self._place.stats, "lease_ms", read=lambda value: whole(value, DEFAULT_LEASE_MS)),
            growth.held_call(self._place),
        ])  # fmt: skip
        if held:
            await self._run(growth.let_go(self._namespace, self._place))
        for found in await recover(self._link, self._place, idle_s=lease_ms / 1000,
                                   default_max_retries=self._settings.default_max_retries):
            _log.warning("recovered job=%s outcome=%s from worker=%s", found.id, found.what, found.worker)
            if self._notice is not None:
                self._notice(self._place, found)

    async def _run(self, plan: Plan[None]) -> None:
        try:
            steps = next(plan)
            while True:
                steps = plan.send(await self._link.execute(steps))
        except StopIteration:
            return
