"""Regaining partitions after a lost answer: what is handed back, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from rzsched import keys
from rzsched.errors import ConnectionFailed
from rzsched.keys import Partition
from rzsched.posts import Lane, Post
from rzsched.regaining import Regaining

PLACE = keys.partition("rz", "q", 0)


class Link:
    """Take down what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def execute(self, steps: list[Any]) -> list[Any]:
        self.asked += steps
        return [[] for _ in steps]


async def test_a_round_trip_under_way_is_waited_for_before_anything_is_handed_back() -> None:
    """It began after the lane's other one and was no part of what failed; what it claims runs here."""
    link, known, lane = Link(), dict[Partition, list[str]](), Lane([Post(PLACE, 1)])
    answer, regained = asyncio.Event(), asyncio.Event()

    async def claim() -> None:
        await answer.wait()
        known[PLACE] = ["17"]

    async def rejoin(_: Iterable[Partition]) -> None:
        """Find the server there."""

    regaining = Regaining(link, "worker", known=lambda: known, rejoin=rejoin,  # type: ignore[arg-type]
                          lanes={None: lane}, regained=regained.set)
    lane.in_flight.add(asyncio.create_task(claim()))
    regaining.lose(lane, ConnectionFailed("gone"))
    asyncio.get_running_loop().call_later(0.2, answer.set)
    await asyncio.wait_for(regained.wait(), 10)
    (release,) = link.asked
    assert "17" in release.args, "it is not handed back"
    assert not lane.posts[0].lost
