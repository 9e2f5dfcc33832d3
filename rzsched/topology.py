"""Which node of a Redis Cluster owns which slot, as one client knows it. Pure: what the nodes say is given to it.

The picture may be old: a node that does not own a slot says who does, and one that dies makes the picture doubtful, so
that it is asked for anew before the next try.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from rzsched.calls import ANYWHERE, Argument, Call, command

Address = str
"""`host:port`."""


@lru_cache(maxsize=8192)
def slot_of(route: Argument) -> int:
    """Give the slot of a key; a number is one already."""
    if isinstance(route, int):
        return route
    return key_slot(route if isinstance(route, bytes) else route.encode())


def address_of(host: Any, port: int, asked: Address) -> Address:
    """Spell an address; a node that does not know its own host is where it was asked."""
    name = host.decode() if isinstance(host, bytes) else host
    if not name or name == "?":
        name = asked.rpartition(":")[0]
    return f"[{name}]:{port}" if ":" in name and not name.startswith("[") else f"{name}:{port}"


class Topology:
    """The owners of the slots, and every node that was ever heard of."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self._seeds = list(seeds)
        self._owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._masters: set[Address] = set()
        self._nodes: set[Address] = set(seeds)
        self._suspects: set[Address] = set()
        self.is_doubtful = True

    def owner(self, route: Argument) -> Address | None:
        """Give the master that owns a key, or any master for what may run anywhere."""
        if route == ANYWHERE:
            return next(iter(self.masters()), None)
        return self._owners[slot_of(route)]

    def masters(self) -> list[Address]:
        """Give every master, those first that answered last, else in a random order."""
        return self._shuffled(self._masters)

    def candidates(self) -> list[Address]:
        """Give every node there may be, in the order in which to ask them for the picture."""
        return self._shuffled(self._nodes)

    def _shuffled(self, nodes: Iterable[Address]) -> list[Address]:
        return sorted(nodes, key=lambda node: (node in self._suspects, random.random()))

    def suspect(self, node: Address) -> None:
        """Hear that a node did not answer."""
        self._suspects.add(node)
        self.is_doubtful = True

    def moved(self, slot: int, node: Address) -> None:
        """Hear from one node that another one owns a slot now."""
        self._owners[slot] = node
        self._masters.add(node)
        self._nodes.add(node)
        self.is_doubtful = True

    def take(self, ranges: list[Any], asked: Address) -> None:
        """Take the answer to CLUSTER SLOTS of the node that was asked."""
        owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        nodes, masters = set(self._seeds), set()
        for first, last, *servers in ranges:
            addresses = [address_of(server[0], server[1], asked) for server in servers]
            nodes.update(addresses)
            masters.add(addresses[0])
            owners[first : last + 1] = [addresses[0]] * (last + 1 - first)
        self._owners, self._masters, self._nodes = owners, masters, nodes
        self._suspects.discard(asked)
        self._suspects &= nodes
        self.is_doubtful = None in owners


def slots_call(read: Callable[[list[Any]], list[Any]] = list) -> Call[list[Any]]:
    return command("CLUSTER", "SLOTS", read=read, route=ANYWHERE)


def one_slot_of_each_master(ranges: list[Any]) -> list[int]:
    """Read CLUSTER SLOTS as one slot of each master, by which a step can be sent to it."""
    return sorted({(server[0], server[1]): first for first, _, server, *_ in ranges}.values())
