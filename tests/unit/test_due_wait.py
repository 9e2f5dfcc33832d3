"""Waiting for what is due: how long, what ends it early, and when an idle worker is asked for slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from rzsched import keys
from rzsched.calls import Claims, Promotion
from rzsched.due_wait import COLD_S, WARM_S, DueWait
from rzsched.offers import Asking, Offer

PLACE = keys.partition("rz", "q", 0)
IDLE_S = 5.0
NOW_MS = 1_800_000_000_000
NOTHING_DUE = Promotion(now_us=NOW_MS * 1000)


class Worker:
    """Take down what is asked of it; it gives nothing by itself."""

    def __init__(self) -> None:
        self.offers: list[Offer] = []
        self.given: list[asyncio.Future[Any]] = []

    def ask(self, _: Any) -> Offer:
        self.offers.append(Offer(PLACE, "w", 1000, asyncio.get_running_loop()))
        return self.offers[-1]

    def give(self) -> None:
        self.given.append(self.offers[-1].give(1))


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def asking(worker: Worker) -> Asking:
    return Asking(PLACE, worker.ask)


@pytest.fixture
def wait(asking: Asking) -> DueWait:
    return DueWait(IDLE_S, asking)


def due_in(seconds: float) -> Promotion:
    return replace(NOTHING_DUE, next_run_at_ms=NOW_MS + int(seconds * 1000))


def fires_in(seconds: float) -> Promotion:
    return replace(NOTHING_DUE, next_fire_ms=NOW_MS + int(seconds * 1000))


async def took_s(waiting: Coroutine[Any, Any, None]) -> float:
    began = time.monotonic()
    await asyncio.wait_for(waiting, IDLE_S * 2)
    return time.monotonic() - began


async def test_no_look_comes_earlier_than_it_should(wait: DueWait) -> None:
    assert await took_s(wait.until_due(due_in(0.2))) >= 0.2 - WARM_S
    assert await took_s(wait.until_due(due_in(0.01))) >= 0.009


async def test_nothing_is_waited_for_longer_than_the_bound() -> None:
    wait = DueWait(0.05, Asking(PLACE, None))
    for promotion in (NOTHING_DUE, due_in(60), fires_in(60), Promotion(held_by="another", held_ms=60_000)):
        assert await took_s(wait.until_due(promotion)) < 2
    assert await took_s(wait.until_due(Promotion(held_by="another", held_ms=1))) < 2


async def test_news_of_an_earlier_job_end_the_wait_and_of_a_later_one_do_not(wait: DueWait) -> None:
    waiting = asyncio.create_task(wait.until_due(due_in(4)))
    await asyncio.sleep(0)
    wait.hear(NOW_MS + 4001)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.05)
    wait.hear(NOW_MS + 3999)
    await asyncio.wait_for(waiting, 2)


async def test_an_idle_worker_is_asked_before_a_job_is_due_and_not_before_a_schedule_is(wait: DueWait,
                                                                                        worker: Worker) -> None:
    await wait.until_due(fires_in(COLD_S + 0.01))
    await wait.until_due(fires_in(0.005))
    assert worker.offers == []
    await wait.until_due(due_in(COLD_S + 0.01))
    assert len(worker.offers) == 1
    wait.looked(NOTHING_DUE, has_fired=False)
    await wait.until_due(due_in(0.004))
    assert len(worker.offers) == 1, "it has been asked already"


async def test_what_was_offered_for_a_job_that_is_gone_is_given_back_before_a_long_sleep(
        wait: DueWait, worker: Worker, asking: Asking) -> None:
    await wait.until_due(due_in(COLD_S + 0.01))
    worker.give()
    wait.looked(NOTHING_DUE, has_fired=False)
    waiting = asyncio.create_task(wait.until_due(due_in(4)))
    claims, _ = await asyncio.wait_for(worker.given[0], 2)
    assert claims == Claims()
    assert asking.take() is None
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_refused_offer_is_no_reason_not_to_ask_before_the_next_job(wait: DueWait, worker: Worker) -> None:
    for count in (1, 2):
        await wait.until_due(due_in(0.004))
        assert len(worker.offers) == count
        wait.looked(replace(NOTHING_DUE, count=1), has_fired=False)
