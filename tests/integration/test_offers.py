"""What an idle worker offers to the scheduler beside it: given only while all is quiet, and never kept back."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from rzsched import AsyncClient, calls, keys
from rzsched.calls import Claimed, Claims
from rzsched.config import SchedulerSettings
from rzsched.connect import LinkSettings
from rzsched.errors import ConnectionFailed
from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink, async_link
from rzsched.offers import MOST_OFFERED, Asking, Filling, Offer
from rzsched.pump import Pump
from rzsched.scheduler import Scheduler
from rzsched.scripts import script
from tests.fleet import Fleet, until
from tests.producer import Front, port_of
from tests.states import assert_one_place

PLACE = keys.partition("rz", "default", 0)
ELSEWHERE = keys.partition("rz", "other", 0)
SLOTS = 10
LEASE_MS = 60_000


@dataclass
class Idle:
    """A pump without a crew: what it would begin is taken down, with the link that it uses."""

    link: AnyAsyncLink
    begun: list[Claimed] = field(default_factory=list)
    trusted: bool = True
    pump: Pump = field(init=False)

    def __post_init__(self) -> None:
        self.pump = Pump(self.link, "w", LEASE_MS, SLOTS, begin=lambda _, claimed, sent: self.begun.extend(claimed),
                         note=lambda *_: None, may_claim=lambda: self.trusted,
                         known=lambda: {PLACE: [each.fence for each in self.begun]}, rejoin=self._rejoin,
                         settled=lambda _: None)  # fmt: skip
        self.pump.add(PLACE, 1)

    async def _rejoin(self, places: Any) -> None:
        await self.link.execute([calls.join(place, 60.0, {}) for place in places])

    async def offered(self, place: Partition = PLACE) -> Offer:
        offer = self.pump.ask(place)
        assert offer is not None
        await asyncio.sleep(0)
        return offer

    async def claim_due(self, offer: Offer) -> Claims:
        """Do what a scheduler does, without telling what came of it."""
        step = calls.promote_claim(PLACE, "s", 60, 100, offer.worker, offer.lease_ms, offer.slots)
        ((_, claims),) = await self.link.execute([step])
        return claims  # type: ignore[no-any-return]

    async def quiet(self) -> None:
        async with asyncio.timeout(10):
            while not self.pump.is_quiet or any(post.lost for post in self.pump.posts.values()):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def idle_worker(url: str) -> AsyncIterator[Idle]:
    link = async_link(url, LinkSettings())
    await link.execute([calls.join(PLACE, 60.0, {})])
    idle = Idle(link)
    yield idle
    await idle.quiet()
    assert idle.pump.free + len(idle.begun) == SLOTS, "slots have come back or are in use"
    await link.aclose()
    assert_one_place(url)


async def due_job(url: str) -> str:
    async with AsyncClient(url) as client:
        job = await client.schedule_job("t", delay=0.02)
    await asyncio.sleep(0.03)
    return job


# ---- the worker's side


async def test_what_is_claimed_with_offered_slots_runs_at_the_worker(redis_url: str) -> None:
    async with idle_worker(redis_url) as idle:
        job = await due_job(redis_url)
        offer = await idle.offered()
        assert (offer.slots, idle.pump.free) == (SLOTS // 2, SLOTS - SLOTS // 2)
        sent = time.monotonic()
        offer.settle((await idle.claim_due(offer), sent))
        await idle.quiet()
        assert [run.id for run in idle.begun] == [job]
        assert idle.pump.ask(PLACE) is None, "it runs something, so who is idle shall have the next job"


async def test_slots_that_are_not_needed_come_back(redis_url: str) -> None:
    async with idle_worker(redis_url) as idle:
        offer = await idle.offered()
        offer.settle((await idle.claim_due(offer), time.monotonic()))
        await idle.quiet()
        assert idle.pump.free == SLOTS
        asking = Asking(PLACE, idle.pump.ask)
        asking.begin()
        assert asking.take() is None, "the worker has not had the time to give any"
        asking.end()
        await asyncio.sleep(0)
        await idle.quiet()
        assert (idle.pump.free, asking.take()) == (SLOTS, None)


async def test_jobs_claimed_in_an_answer_that_the_scheduler_lost_are_handed_back(redis_url: str) -> None:
    async with idle_worker(redis_url) as idle:
        job = await due_job(redis_url)
        offer = await idle.offered()
        assert len(await idle.claim_due(offer)) == 1
        offer.settle(ConnectionFailed("gone"))
        await idle.quiet()
        async with AsyncClient(redis_url) as client:
            status = await client.get_job_status(job)
        assert (status.state, status.attempts, idle.begun) == ("PENDING", 0, [])


def _distrust(idle: Idle) -> None:
    idle.trusted = False


def _lose(idle: Idle) -> None:
    idle.pump.posts[PLACE].lost = True


def _shut(idle: Idle) -> None:
    idle.pump.posts[PLACE].shut = asyncio.get_running_loop().call_later(0.1, lambda: None)


def _fill_up(idle: Idle) -> None:
    idle.pump.free = 1


@pytest.mark.parametrize("spoil", [_distrust, _lose, _shut, _fill_up, lambda idle: idle.pump.close()],
                         ids=["cut off from its leases", "lost", "shut", "runs jobs", "closing"])  # fmt: skip
async def test_nothing_is_given_unless_all_is_quiet(redis_url: str, spoil: Callable[[Idle], None]) -> None:
    async with idle_worker(redis_url) as idle:
        before = idle.pump.free
        asked = idle.pump.ask(PLACE)
        spoil(idle)
        await asyncio.sleep(0)
        assert asked is not None and asked.slots == 0
        idle.pump.free, idle.pump.posts[PLACE].lost = before, False


async def test_one_offer_at_a_time_and_none_for_a_foreign_queue(redis_url: str) -> None:
    async with idle_worker(redis_url) as idle:
        assert (await idle.offered(ELSEWHERE)).slots == 0
        first, second = idle.pump.ask(PLACE), idle.pump.ask(PLACE)
        await asyncio.sleep(0)
        assert first is not None and second is not None
        assert (first.slots > 0, second.slots) == (True, 0)
        second.settle(ConnectionFailed("nothing was offered, so nothing is lost"))
        first.settle((Claims(), 0.0))


async def test_what_comes_after_the_worker_has_left_disturbs_nobody(redis_url: str) -> None:
    """A server that stands still keeps the answer away for longer than a worker stays."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with idle_worker(redis_url) as idle:
        offer = await idle.offered()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.gather(*idle.pump._in_flight)
        offer.settle((Claims(), 0.0))
        await asyncio.sleep(0)
        assert complaints == []
        idle.pump.free = SLOTS


# ---- the scheduler's side


@dataclass
class Giver:
    """A worker that is always idle."""

    given: list[asyncio.Future[Filling]] = field(default_factory=list)

    def ask(self, place: Partition) -> Offer:
        offer = Offer(place, "w", LEASE_MS, asyncio.get_running_loop())
        self.given.append(offer.give(MOST_OFFERED))
        return offer

    @property
    def claimed(self) -> list[str]:
        return [run.id for each in self.given if each.done() and not each.exception() for run in each.result()[0]]


@asynccontextmanager
async def beside(giver: Giver, url: str) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(url, "rz", SchedulerSettings(lease_s=1.0), ask=giver.ask)
    at_work = asyncio.create_task(scheduler.run())
    yield scheduler
    scheduler.stop()
    await asyncio.wait_for(at_work, 10)
    await asyncio.sleep(0)
    assert all(each.done() for each in giver.given), "what was offered is given back"


async def test_a_scheduler_claims_due_jobs_for_the_idle_worker_beside_it(redis_url: str, raw: Any) -> None:
    giver = Giver()
    async with beside(giver, redis_url), AsyncClient(redis_url) as client:
        jobs = [await client.schedule_job("t", delay=delay) for delay in (0.1, 0.3, 0.31, 0.6)]
        await asyncio.to_thread(until, lambda: giver.claimed == jobs)
        states = [(await client.get_job_status(job)).state for job in jobs]
    assert states == ["RUNNING"] * 4
    assert {raw.get(PLACE.lock(job)).partition(b"#")[0] for job in jobs} == {b"w"}


async def test_a_look_that_is_cut_short_says_so(redis_url: str) -> None:
    """The server has the call and does not answer, when the scheduler is told to stop."""
    giver, sha = Giver(), script("promote_claim").sha.encode()
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def swallow(command: list[bytes]) -> bytes | None:
        if sha not in command:
            return None
        loop.call_soon_threadsafe(asked.set)
        return b""

    with Front(port_of(redis_url)) as front:
        front.refuse = swallow
        async with beside(giver, front.url), AsyncClient(redis_url) as client:
            job = await client.schedule_job("t", delay=0.1)
            await asyncio.wait_for(asked.wait(), 10)
    assert [type(each.exception()) for each in giver.given if each.exception()] == [ConnectionFailed]
    async with AsyncClient(redis_url) as client:
        await client.cancel_job(job)


async def test_a_scheduler_without_the_lease_asks_for_nothing(redis_url: str, raw: Any) -> None:
    giver = Giver()
    raw.set(PLACE.lease, "another", px=600)
    async with beside(giver, redis_url), AsyncClient(redis_url) as client:
        job = await client.schedule_job("t", delay=0.05)
        await asyncio.to_thread(until, lambda: raw.hget(PLACE.job(job), "entry"), "that lease has ended")
        assert giver.given == []


# ---- both


@pytest.mark.parametrize("lost", [False, True])
def test_due_jobs_start_at_a_worker_by_the_step_that_moves_them(redis_url: str, lost: bool) -> None:
    """Each runs once, even where the answer is lost that says what was claimed."""
    steps, sha = itertools.count(), script("promote_claim").sha.encode()

    def cut(command: list[bytes]) -> bool:
        return sha in command and next(steps) >= 0 and lost

    with Front(port_of(redis_url)) as front, Fleet(redis_url) as fleet:
        front.cut = cut
        worker = fleet.worker("-c", "5", url=front.url)
        jobs = []
        while next(steps) < 12:
            jobs.append(fleet.client.schedule_job("record", delay=0.05))
            fleet.client.wait(jobs[-1], 8)  # long before the lease would end
        assert Counter(each["job"] for each in fleet.ledger()) == Counter(jobs)
        assert {fleet.client.get_job_status(job).attempts for job in jobs} == {1}
        assert fleet.stop(worker) == 0
        fleet.check()


def test_paused_queues_stay_so(redis_url: str) -> None:
    with Fleet(redis_url) as fleet:
        worker = fleet.worker()
        fleet.client.wait(fleet.client.schedule_job("record"), 8)
        fleet.client.pause("default")
        job = fleet.client.schedule_job("record", delay=0.05)
        until(lambda: fleet.client.queue_stats("default").ready == 1)
        assert fleet.state(job) == "PENDING"
        fleet.client.resume("default")
        fleet.client.wait(job, 8)
        assert fleet.stop(worker) == 0
        fleet.check()
