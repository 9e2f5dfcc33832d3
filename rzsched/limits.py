"""Limits of a queue, as plans (see `operations`): whether it is paused, and how many of its jobs may run or start.

Each partition keeps its own share in the hash `limits`, which every claim reads. A limit of a queue with several
partitions is dealt out evenly among them, so it is exact for the queue as a whole and an idle partition's share is not
lent to a busy one; with one partition, which is the default, there is nothing to share.

A claim that is held up says why and for how long. The worker then leaves that partition alone, its blocking
read too, until the channel `gate` says that a place got free or the limits changed, or until that time has passed.
"""

import math

from rzsched import layout
from rzsched.config import Seconds, seconds
from rzsched.growth import check_partitions, configure, grow, stored_limits
from rzsched.keys import Partition
from rzsched.names import check_queue
from rzsched.space import Plan, Space, partitions_of, register

Rate = tuple[int, Seconds]
"""So many jobs in so many seconds."""
LONGEST_RATE_S = 366 * 86_400
MOST = 1_000_000


def pause(space: Space, queue: str) -> Plan[None]:
    """Start no more jobs of a queue; running ones end, and what is due is still moved and kept waiting."""
    places = yield from _places(space, queue)
    yield [configure(place, {"paused": "1"}) for place in places]


def resume(space: Space, queue: str) -> Plan[None]:
    """Start jobs of a paused queue again."""
    places = yield from _places(space, queue)
    yield [configure(place, {"paused": ""}) for place in places]


def configure_queue(space: Space, queue: str, *, concurrency: int | None = None, rate: Rate | None = None,
                    partitions: int | None = None) -> Plan[None]:
    """Limit a queue over all its workers: `concurrency` jobs running at once, `rate` = (jobs, seconds) started in any
    such span. None leaves a limit as it is; 0, or a rate of 0 jobs, removes it.

    `partitions` makes a queue with so many, or has one grow while it is in use; see `growth`. Raises ValueError or
    TypeError, before anything is written, for a senseless limit, for one that is smaller than the number of partitions,
    and for fewer partitions than there are.
    """
    if concurrency is not None:
        _check_count(concurrency, "concurrency")
    rate_ms = None if rate is None else _check_rate(rate)
    if partitions is not None:
        check_partitions(partitions)
    (found,) = yield [layout.look(space.settings.namespace, check_queue(queue))]
    count = found.partitions if found else 0
    if partitions is not None and partitions < count:
        raise ValueError(f"a queue can't shrink: {queue} has {count} partitions, and its jobs live there")
    wanted = max(count, partitions or 1)
    stored = yield from stored_limits(space, queue, count)
    totals = stored.changed(concurrency, rate and rate[0], rate_ms)
    if (too_few := totals.smaller_than(wanted)) is not None:
        what, most = too_few
        raise ValueError(f"{what} must be at least {wanted}, as many as the queue has partitions, not {most}")
    if count == wanted:
        yield [configure(space.place(queue, number), shares)
               for number in range(count) if (shares := totals.shares(number, wanted, only_named=True))]
        return
    yield from grow(space, queue, count, wanted, stored, totals)


def _places(space: Space, queue: str) -> Plan[list[Partition]]:
    yield from register(space, [check_queue(queue)])
    return (yield from partitions_of(space, queue))


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
