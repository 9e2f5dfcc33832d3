"""A worker's posts, one for each partition it works on: which of them to ask for jobs, and for how many.

A post is `hot` while its claims come back full. It is shut while a limit of its queue holds its jobs up: nothing is
read or asked there until its time to look has come or the gate's channel says that it is worth it (see `limits`).
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rzsched.calls import Claims, Outcome
from rzsched.keys import Partition

MOST_CLAIMED = 100
"""Jobs in one call, which bounds how long a script holds the server."""
COLD_S = 0.02
"""How often a busy worker asks a partition that had nothing."""
FAIR_SLOTS = 8
"""Of this many slots one goes to a priority whose turn it is, so that none starves."""


@dataclass(slots=True, eq=False)
class Post:
    """A worker's work on one partition: what ended there and is not yet settled, and whether there is more to claim."""

    place: Partition
    weight: int
    hot: bool = True
    outcomes: list[Outcome] = field(default_factory=list)
    slot_credit: float = 0.0
    fair_credit: int = 0
    fair_turn: int = 0
    asked_at: float = 0.0
    shut: asyncio.TimerHandle | None = None
    lost: bool = False
    """A round trip failed here: jobs may be pending for this worker that it knows nothing of."""

    def take_answer(self, claims: Claims, limit: int, look_again: Callable[["Post"], None]) -> bool:
        """Learn from a claim of at most `limit` whether there is more; say whether a shut post is open again."""
        if limit == 0:
            return False
        self.hot = len(claims) >= limit
        was_shut = self.open()
        if claims.gate:
            self.hot = False
            self.shut = asyncio.get_running_loop().call_later(claims.look_s, look_again, self)
        return was_shut and self.shut is None

    def open(self) -> bool:
        """Let the post be asked again; say whether it was shut."""
        shut, self.shut = self.shut, None
        if shut is not None:
            shut.cancel()
        return shut is not None

    def fair_priority(self, limit: int) -> str:
        """Say which priority goes first for one slot, once in FAIR_SLOTS slots; '' for none."""
        self.fair_credit += limit
        if limit == 0 or self.fair_credit < FAIR_SLOTS:
            return ""
        self.fair_credit = 0
        self.fair_turn += 1
        return str(1 + self.fair_turn % 9)


@dataclass(slots=True, eq=False)
class Lane:
    """Posts that share their round trips and their blocking read: all of a server's, one by one in a cluster.

    So a node that is slow or away holds up nobody's jobs but its own.
    """

    posts: list[Post] = field(default_factory=list)
    in_flight: "set[asyncio.Task[None]]" = field(default_factory=set)
    reading: list[Partition] = field(default_factory=list)
    """Where the blocking read that is under way waits."""

    @property
    def waiting(self) -> int:
        """Count the outcomes that are not yet settled."""
        return sum(len(post.outcomes) for post in self.posts)


def look_at_cold(posts: Iterable[Post]) -> None:
    """Ask the other partitions now and then while one is hot, for then no blocking read waits for their jobs."""
    now = time.monotonic()
    posts = list(posts)
    if any(post.hot for post in posts):
        for post in posts:
            post.hot = post.hot or (post.shut is None and now - post.asked_at >= COLD_S)
    for post in posts:
        if post.hot:
            post.asked_at = now


def share_slots(posts: list[Post], free: int) -> list[int]:
    """Deal the free slots out by weight; what rounding takes from a post now, it gets later."""
    free, total = max(free, 0), sum(post.weight for post in posts)
    for post in posts:
        post.slot_credit += free * post.weight / total
    limits = dict.fromkeys(posts, 0)
    for post in sorted(posts, key=lambda post: post.slot_credit, reverse=True):
        # Where all had their slots in advance the first has one all the same: else nobody asks, and no answer comes.
        is_first = free > 0 and not any(limits.values())
        limits[post] = share = min(MOST_CLAIMED, free, max(int(is_first), math.ceil(post.slot_credit)))
        free -= share
        post.slot_credit = min(post.slot_credit - share, post.weight)
    return list(limits.values())
