"""What goes wrong, when, and at whom: decided by the seed alone."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LEASE_S = 3.0
QUIET_START_S = 4.0
GAP_S = (1.0, 3.0)
UP_AGAIN_S = 3.0
"""A process that was started again gets so long in peace: else it would never do any work."""


class Kind(NamedTuple):
    """A kind of fault: who may be hit, for how long, how many cards of the deck it has."""

    role: str
    shortest_s: float = 0.0
    longest_s: float = 0.0
    cards: int = 1


KINDS: Mapping[str, Kind] = {
    "kill_worker": Kind("worker", 0.3, 1.5, 3),
    "kill_child": Kind("supervisor", 0.5, 0.5, 2),
    "kill_supervisor": Kind("supervisor", 0.5, 1.5),
    "kill_scheduler": Kind("scheduler", 0.5, 2.5),
    "stop_worker": Kind("worker", 1.3 * LEASE_S, 2.5 * LEASE_S, 2),
    "stop_child": Kind("supervisor", 1.3 * LEASE_S, 2 * LEASE_S),
    "nap_worker": Kind("worker", 0.1 * LEASE_S, 0.4 * LEASE_S),
    "stop_scheduler": Kind("scheduler", 1.0, 4.0),
    "restart_worker": Kind("worker", 0.5, 1.0, 2),
    "restart_supervisor": Kind("supervisor", 0.5, 1.0),
    "kill_server": Kind("server", 0.1, 2.0, 2),
    "stop_server": Kind("server", 0.5, 1.5 * LEASE_S),
    "flush_scripts": Kind("server", cards=2),
    "kill_clients": Kind("server", cards=2),
    "destroy_groups": Kind("server", cards=2),
    "refuse_writes": Kind("server", 1.0, 3.0),
    "swallow_bytes": Kind("proxied", 0.5, 2.5 * LEASE_S, 2),
    "step_clock": Kind("shifted"),
}

WITH_COPIES: Mapping[str, Kind] = {
    **KINDS,
    "kill_server": Kind("server", 5.0, 9.0, 3),
    "stop_server": Kind("server", 1.0, 6.0, 2),
    "move_slot": Kind("cluster", cards=3),
}
"""The same where another node takes over from one that is away: it needs the time to."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it begins `at_s` seconds after the start, and is healed `for_s` seconds later."""

    at_s: float
    kind: str
    target: str
    for_s: float


def plan(seed: int, seconds: float, targets: Mapping[str, Sequence[str]],
         kinds: Mapping[str, Kind] = KINDS) -> list[Fault]:
    """Draw faults for a run of that length; `targets` names who plays each role.

    Kinds come from a shuffled deck, so a run of a few minutes meets each. Nobody is hit by two faults at once, but
    different ones are.
    """
    chance = random.Random(seed)
    free_from: dict[str, float] = {}
    faults: list[Fault] = []
    at_s = QUIET_START_S
    for kind in _deal(chance, targets, kinds):
        spec = kinds[kind]
        for_s = chance.uniform(spec.shortest_s, spec.longest_s)
        gap_s = chance.uniform(*GAP_S)
        names = [name for name in targets[spec.role] if free_from.get(name, 0.0) <= at_s]
        at_s += gap_s
        if at_s + for_s > seconds:
            return faults
        if names:
            target = chance.choice(names)
            free_from[target] = at_s + for_s + UP_AGAIN_S
            faults.append(Fault(round(at_s, 3), kind, target, round(for_s, 3)))
    return faults


def _deal(chance: random.Random, targets: Mapping[str, Sequence[str]], kinds: Mapping[str, Kind]) -> Iterator[str]:
    cards = [kind for kind, spec in kinds.items() for _ in range(spec.cards) if targets.get(spec.role)]
    while cards:
        deck = list(cards)
        chance.shuffle(deck)
        yield from deck
