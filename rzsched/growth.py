"""Growing a queue while it is in use: new partitions are made ready with their shares of the limits, then shown.

Invariant: over all partitions never more jobs run, or start in a rate's span, than the limits say. So first the older
partitions get their smaller shares. Each may still run more than its share, or have started more in the last span,
and that goes only down from now on. A new partition is therefore written as `held` before anybody can see it, and let
go once each of the older ones has been seen within its share and a span has passed; by who had the queue grow, else by
the scheduler that has the partition. Each step may be repeated: who died halfway is followed by the next call, which
knows the limits as they were meant from the totals that every partition holds beside its share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rzsched import calls, keys, layout
from rzsched.calls import Argument, Call
from rzsched.exchange import Step
from rzsched.keys import Partition
from rzsched.space import Plan, Space
from rzsched.status import whole


def configure(place: Partition, limits: dict[str, str], now_ms: str = "") -> Call[str]:
    """Set limits of one partition, or remove those that are ''."""
    flat: list[Argument] = [word for limit in limits.items() for word in limit]
    return Call("configure", place.fixed, (now_ms, len(limits), *flat), lambda answer: str(answer[0].decode()))


def check_partitions(value: object) -> None:
    if type(value) is not int:
        raise TypeError(f"partitions must be an int, not {type(value).__name__}")
    if not 1 <= value <= layout.MOST_PARTITIONS:
        raise ValueError(f"partitions must be from 1 to {layout.MOST_PARTITIONS}, not {value}")


@dataclass(frozen=True, slots=True)
class Totals:
    """The limits of a queue as a whole; 0 is no limit. `named` are those that a caller has just set."""

    concurrency: int = 0
    rate: int = 0
    rate_ms: int = 0
    paused: bool = False
    named: frozenset[str] = frozenset()

    def changed(self, concurrency: int | None, rate: int | None, rate_ms: int | None) -> "Totals":
        named = {name for name, value in (("concurrency", concurrency), ("rate", rate)) if value is not None}
        return Totals(
            self.concurrency if concurrency is None else concurrency, self.rate if rate is None else rate,
            self.rate_ms if rate_ms is None else rate_ms, self.paused, frozenset(named),
        )  # fmt: skip

    def smaller_than(self, partitions: int) -> tuple[str, int] | None:
        """Name a limit that can't be dealt out among so many."""
        for what, most in (("concurrency", self.concurrency), ("rate", self.rate)):
            if 0 < most < partitions:
                return what, most
        return None

    def shares(self, number: int, partitions: int, *, only_named: bool = False) -> dict[str, str]:
        """Deal out: what one partition is to hold, '' for no limit."""
        told: dict[str, str] = {}
        if "concurrency" in self.named or (self.concurrency and not only_named):
            told["concurrency"] = _share(self.concurrency, number, partitions)
            told["concurrency_total"] = str(self.concurrency or "")
        if "rate" in self.named or (self.rate and not only_named):
            told["rate"] = _share(self.rate, number, partitions)
            told["rate_ms"] = str(self.rate_ms) if self.rate else ""
            told["rate_total"] = str(self.rate or "")
        return told


def _share(count: int, number: int, partitions: int) -> str:
    share = count // partitions + (number < count % partitions)
    return str(share) if share else ""


def stored_limits(space: Space, queue: str, partitions: int) -> Plan[Totals]:
    """Read the limits that a queue has."""
    if partitions == 0:
        return Totals()
    places = [space.place(queue, number) for number in range(partitions)]
    told: list[dict[str, int]] = yield [calls.command("HGETALL", place.limits, read=_table) for place in places]

    def total(name: str) -> int:
        # A queue limited before there were totals holds its shares only.
        return max(each.get(f"{name}_total", 0) for each in told) or sum(each.get(name, 0) for each in told)

    return Totals(total("concurrency"), total("rate"), max(each.get("rate_ms", 0) for each in told),
                  any("paused" in each for each in told))


def _table(answer: Any) -> dict[str, int]:
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode(): whole(value, 0) for name, value in pairs}


def _number(answer: bytes | None) -> int:
    return whole(answer, 0)


def _numbers(answer: list[bytes | None]) -> list[int]:
    return [_number(each) for each in answer]


def grow(space: Space, queue: str, count: int, wanted: int, stored: Totals, totals: Totals) -> Plan[None]:
    """Have a queue of `count` partitions grow to `wanted`; 0 makes it."""
    old, new = _places(space, queue, 0, count), _places(space, queue, count, wanted)
    yield from _configure(old, totals, wanted)
    held: dict[str, str] = {}
    if count and (totals.concurrency or totals.rate):
        held = {"held": str(count), "held_until": f"+{max(stored.rate_ms, totals.rate_ms)}" if totals.rate else ""}
    yield from _configure(new, totals, wanted, {**held, **_pause(stored)})
    namespace = space.settings.namespace
    (found,) = yield [layout.grow(namespace, queue, wanted, count or wanted)]
    space.learn(queue, found)
    yield [calls.publish(keys.regroup_channel(namespace), layout.CHANGED)]
    if old:
        # Somebody may have paused or resumed the queue who did not see the new ones yet.
        now = yield from stored_limits(space, queue, count)
        if now.paused != stored.paused:
            yield [configure(place, _pause(now)) for place in new]
    for place in new if held else ():
        yield from let_go(namespace, place)


def _pause(totals: Totals) -> dict[str, str]:
    return {"paused": "1" if totals.paused else ""}


def _places(space: Space, queue: str, first: int, end: int) -> list[Partition]:
    return [space.place(queue, number) for number in range(first, end)]


def _configure(places: Sequence[Partition], totals: Totals, partitions: int,
               more: dict[str, str] | None = None) -> Plan[None]:
    told = [(place, {**totals.shares(place.number, partitions), **(more or {})}) for place in places]
    steps: list[Step] = [configure(place, limits) for place, limits in told if limits]
    if steps:
        yield steps


def let_go(namespace: str, place: Partition) -> Plan[None]:
    """Let a held partition start jobs, if what its share is taken from is down to the rest."""
    (held, until), now_ms = yield [
        calls.command("HMGET", place.limits, "held", "held_until", read=_numbers),
        calls.server_ms(place.base),
    ]  # fmt: skip
    if not held or now_ms < until:
        return
    old = [keys.partition(namespace, place.queue, number) for number in range(held)]
    shares = yield [calls.command("HGET", each.limits, "concurrency", read=_number) for each in old]
    times = yield [calls.server_ms(each.base) for each in old]
    running = yield [
        calls.command("ZCOUNT", each.running, at_ms, "+inf", read=int)
        for each, at_ms in zip(old, times, strict=True)
    ]
    if all(not share or runs <= share for runs, share in zip(running, shares, strict=True)):
        yield [configure(place, {"held": "", "held_until": ""})]


def held_call(place: Partition) -> Call[int]:
    """Ask whether a partition is held."""
    return calls.command("HGET", place.limits, "held", read=_number)
