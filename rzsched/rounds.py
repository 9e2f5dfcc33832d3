"""The rounds of one call to a cluster, sans-I/O: which steps go to which node next, and what became of each."""

import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import AskError, MovedError

from rzsched.calls import ANYWHERE, Argument
from rzsched.connect import backoff_delays
from rzsched.errors import ConnectionFailed, ServerUnsuitable
from rzsched.exchange import Exchange, Step, route_of, settle_ids
from rzsched.refusals import CredentialsRefused, translate
from rzsched.topology import Address, Topology, address_of

PATIENCE_S = 10.0
"""How long a link that tries again by itself goes on while the cluster is there: a replica needs time to take over."""
MOST_REDIRECTS = 8
"""Redirects that are followed at once; what is sent about for longer has to wait in between."""


class Parcel:
    """The steps of one round that go to one node."""

    def __init__(self, node: Address, asking: bool) -> None:
        self.node = node
        self.asking = asking
        self.indexes: list[int] = []
        self.exchange: Exchange

    def pack(self, steps: list[Step], where: str) -> None:
        chosen = [steps[index] for index in self.indexes]
        self.exchange = Exchange(chosen, f"{where} (node {self.node})", asking=self.asking)


class Rounds:
    """The steps of one caller, sans-I/O: which go where next, and what became of each."""

    def __init__(self, steps: Sequence[Step], topology: Topology, where: str, retry_s: float) -> None:
        self._steps = [settle_ids(step) for step in steps]
        self._topology = topology
        self._where = where
        self._open: dict[int, tuple[Address, bool] | None] = dict.fromkeys(range(len(steps)))
        """The steps without an outcome; each with the node that another one named, if so, and whether by ASK."""
        self._failure: Exception | None = None
        self._redirects = 0
        self._delays = backoff_delays(PATIENCE_S if retry_s else 0)
        self._retry_s = retry_s
        # By the clock: asking every node takes its time too, when each is silent or at the end of a long handshake.
        self._unreached_until_s = time.monotonic() + retry_s
        self._delays_unreached = backoff_delays()
        self._times_unreached = 0
        self.outcomes: list[Any] = [None] * len(steps)

    @property
    def done(self) -> bool:
        return not self._open

    def parcels(self) -> list[Parcel]:
        """Deal the open steps out to their nodes; those of one node stay in their order."""
        self._failure = None
        found: dict[tuple[Address, bool], Parcel] = {}
        anywhere: list[int] = []
        for index, named in self._open.items():
            route = route_of(self._steps[index])
            if route == ANYWHERE:
                anywhere.append(index)
            elif key := named or self._owner(route):
                found.setdefault(key, Parcel(*key)).indexes.append(index)
        if anywhere:
            self._add_anywhere(found, anywhere)
        for parcel in found.values():
            parcel.pack(self._steps, self._where)
        return list(found.values())

    def _owner(self, route: Argument) -> tuple[Address, bool] | None:
        node = self._topology.owner(route)
        if node is not None:
            return node, False
        self._failure = ConnectionFailed(f"no node of the cluster at {self._where} serves all slots")
        self._topology.is_doubtful = True
        return None

    def _add_anywhere(self, found: dict[tuple[Address, bool], Parcel], indexes: list[int]) -> None:
        node = next((node for node, asking in found if not asking), None) or self._topology.owner(ANYWHERE)
        if node is not None:
            parcel = found.setdefault((node, False), Parcel(node, False))
            parcel.indexes = sorted([*parcel.indexes, *indexes])

    def take(self, parcel: Parcel, failure: Exception | None) -> None:
        """Learn from one try at one node."""
        exchange = parcel.exchange
        if failure is not None:
            exchange.lost(failure)
            self._topology.suspect(parcel.node)
        left = set(exchange.open)
        for local, index in enumerate(parcel.indexes):
            self._open[index] = None
            if local not in left:
                self.outcomes[index] = exchange.outcomes[local]
                del self._open[index]
            elif local in exchange.redirects:
                self._follow(index, exchange.redirects[local], parcel.node)
        if left - exchange.redirects.keys():
            self._failure = failure or exchange.refusal
            self._topology.is_doubtful = True

    def _follow(self, index: int, redirect: AskError, asked: Address) -> None:
        node = address_of(redirect.host, redirect.port, asked)
        if isinstance(redirect, MovedError):
            self._topology.moved(redirect.slot_id, node)
        self._open[index] = node, not isinstance(redirect, MovedError)

    def delay(self) -> float | None:
        """Say how long to wait before the next round; None: it is over, and every step has its outcome."""
        if self.done:
            return None
        if self._failure is None:
            self._redirects += 1
            if self._redirects <= MOST_REDIRECTS:
                return 0.0
            self._failure = ConnectionFailed(f"the nodes of the cluster at {self._where} do not agree yet")
        hopeless = isinstance(translate(self._failure, self._where), CredentialsRefused | ServerUnsuitable)
        delay = None if hopeless else next(self._delays, None)
        unnamed = [index for index, named in self._open.items() if named is None]
        if delay is None and len(unnamed) < len(self._open) and self._redirects < MOST_REDIRECTS:
            # What is over for some is not for those that another node is to be asked for.
            self._redirects += 1
            self._give_up(unnamed)
            return 0.0
        return self._wait_or_give_up(delay)

    def unreached(self, error: Exception) -> float | None:
        """Say the same after no node at all could be asked."""
        self._failure = error
        self._times_unreached += 1
        left_s = self._unreached_until_s - time.monotonic()
        is_late = not self._retry_s or (left_s <= 0 and self._times_unreached > 1)
        hopeless = is_late or isinstance(error, CredentialsRefused | ServerUnsuitable)
        return self._wait_or_give_up(None if hopeless else min(next(self._delays_unreached), max(left_s, 0.01)))

    def _wait_or_give_up(self, delay: float | None) -> float | None:
        if delay is None:
            self._give_up(list(self._open))
        return delay

    def _give_up(self, indexes: list[int]) -> None:
        assert self._failure is not None
        for index in indexes:
            self.outcomes[index] = translate(self._failure, self._where)
            del self._open[index]
