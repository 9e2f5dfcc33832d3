"""Limits of a queue, as plans (see `operations`): whether it is paused, and how many of its jobs may run or start.

Each partition keeps its own share in the hash `limits`, which every claim reads. A limit of a queue with several
partitions is dealt out evenly among them, so it is exact for the queue as a whole and an idle partition's share is not
lent to a busy one; with one partition, which is the default, there is nothing to share.

A claim that is held up says why and for how long. The worker then leaves that partition alone, its blocking
read too, until the channel `gate` says that a place got free or the limits changed, or until that time has passed.
"""

import math

from rzsched.calls import Argument, Call
from rzsched.config import Seconds, seconds
from rzsched.exchange import Step
from rzsched.keys import Partition
from rzsched.names import check_queue
from rzsched.space import Plan, Space, partitions_of, register

Rate = tuple[int, Seconds]
"""So many jobs in so many seconds."""
LONGEST_RATE_S = 366 * 86_400
MOST = 1_000_000


def configure(place: Partition, limits: dict[str, str], now_ms: str = "") -> Call[str]:
    """Set limits of one partition, or remove those that are ''."""
    flat: list[Argument] = [word for limit in limits.items() for word in limit]
    return Call("configure", place.fixed, (now_ms, len(limits), *flat), lambda answer: str(answer[0].decode()))


def pause(space: Space, queue: str) -> Plan[None]:
    """Start no more jobs of a queue; running ones end, and what is due is still moved and kept waiting."""
    places = yield from _places(space, queue)
    yield [configure(place, {"paused": "1"}) for place in places]


def resume(space: Space, queue: str) -> Plan[None]:
    """Start jobs of a paused queue again."""
    places = yield from _places(space, queue)
    yield [configure(place, {"paused": ""}) for place in places]


def configure_queue(space: Space, queue: str, *, concurrency: int | None = None,
                    rate: Rate | None = None) -> Plan[None]:
    """Limit a queue over all its workers: `concurrency` jobs running at once, `rate` = (jobs, seconds) started in any
    such span. None leaves a limit as it is; 0, or a rate of 0 jobs, removes it.

    Raises ValueError or TypeError for a senseless limit, and for one that is smaller than the number of partitions.
    """
    if concurrency is not None:
        _check_count(concurrency, "concurrency")
    rate_ms = None if rate is None else _check_rate(rate)
    places = yield from _places(space, queue)
    for count, what in ((concurrency, "concurrency"), (rate and rate[0], "rate")):
        if count and count < len(places):
            raise ValueError(f"{what} must be at least {len(places)}, as many as the queue has partitions, not {count}")
    steps: list[Step] = []
    for number, place in enumerate(places):
        limits = {}
        if concurrency is not None:
            limits["concurrency"] = _share(concurrency, number, len(places))
        if rate is not None:
            limits["rate"] = _share(rate[0], number, len(places))
            limits["rate_ms"] = str(rate_ms) if rate[0] else ""
        if limits:
            steps.append(configure(place, limits))
    yield steps


def _places(space: Space, queue: str) -> Plan[list[Partition]]:
    yield from register(space, [check_queue(queue)])
    return (yield from partitions_of(space, queue))


def _share(count: int, number: int, partitions: int) -> str:
    share = count // partitions + (number < count % partitions)
    return str(share) if share else ""


def _check_count(value: object, what: str) -> None:
    if type(value) is not int:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    if not 0 <= value <= MOST:
        raise ValueError(f"{what} must be from 0 (no limit) to {MOST}, not {value}")


def _check_rate(rate: object) -> int:
    """Give the span of a rate in ms."""
    if not isinstance(rate, tuple) or len(rate) != 2:
        raise TypeError("rate must be a tuple of two: how many jobs, in how many seconds")
    _check_count(rate[0], "the jobs of a rate")
    span = seconds(rate[1], "the seconds of a rate")
    if not 0.001 <= span <= LONGEST_RATE_S:
        raise ValueError(f"the seconds of a rate must be from 0.001 to {LONGEST_RATE_S}, not {str(rate[1])[:40]}")
    return math.ceil(span * 1000)
