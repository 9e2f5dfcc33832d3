"""Links to a Redis Cluster: each step goes to the node that owns its key, the nodes work side by side.

The protocol. Steps are grouped by node and each group is one exchange over that node's own link. MOVED: the step goes
to the node that was named, and the picture of the cluster is taken anew. ASK: that one step goes to the other node,
behind ASKING. TRYAGAIN, CLUSTERDOWN: it did not run, and is sent again after a wait. A node that does not answer: the
others are asked who owns its slots. What may have run follows the same rule as on one server (see `exchange`).

Invariant: every script declares the key `base`, and no such key is ever made. A node refuses a script on several keys
of a slot that is being moved unless it has all of them. So no script ever runs on a part of a partition's keys: until
all are at the new node, the old one says ASK or TRYAGAIN and the new one TRYAGAIN.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import AskError, MovedError

from rzsched.calls import ANYWHERE, Argument
from rzsched.connect import AsyncLink, LinkSettings, SyncLink, backoff_delays, raise_first
from rzsched.errors import ConnectionFailed, RzschedError, ServerUnsuitable
from rzsched.exchange import FOREIGN, CredentialsRefused, Exchange, Step, route_of, settle_ids, translate
from rzsched.topology import Address, Topology, address_of, slots_call
from rzsched.urls import cluster_addresses, describe_url, node_url

PATIENCE_S = 10.0
"""How long a link that tries again by itself goes on while the cluster is there: a replica needs time to take over."""
PING_S = 1.0
"""How soon a node must answer to be listened to."""
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
        self._delays_unreached = backoff_delays(retry_s)
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
        return self._wait_or_give_up(None if hopeless else next(self._delays, None))

    def unreached(self, error: Exception) -> float | None:
        """Say the same after no node at all could be asked."""
        self._failure = error
        hopeless = isinstance(error, CredentialsRefused | ServerUnsuitable)
        return self._wait_or_give_up(None if hopeless else next(self._delays_unreached, None))

    def _wait_or_give_up(self, delay: float | None) -> float | None:
        if delay is None:
            assert self._failure is not None
            for index in self._open:
                self.outcomes[index] = translate(self._failure, self._where)
            self._open.clear()
        return delay


class _Cluster:
    """What the sync and the async link share."""

    def __init__(self, url: str, settings: LinkSettings) -> None:
        self._url = url
        self._settings = settings
        self.where = describe_url(url)
        self.topology = Topology(cluster_addresses(url))

    def _rounds(self, steps: Sequence[Step]) -> Rounds:
        return Rounds(steps, self.topology, self.where, self._settings.retry_s)

    def _node_settings(self) -> LinkSettings:
        chosen = self._settings
        return LinkSettings(chosen.connect_timeout_s, chosen.command_timeout_s, 0, chosen.max_connections)

    def _learn(self, node: Address, exchange: Exchange, failure: Exception | None) -> RzschedError | None:
        """Take a node's picture of the cluster; give what kept it from telling."""
        (outcome,) = exchange.outcomes
        error = failure or exchange.refusal or (outcome if isinstance(outcome, Exception) else None)
        if error is None:
            self.topology.take(outcome, node)
            return None
        if "cluster support disabled" in str(error):
            return ServerUnsuitable(f"redis at {node} is no node of a cluster: use a redis:// URL")
        self.topology.suspect(node)
        return translate(error, self.where)

    def doubt(self) -> None:
        """Hear that a node was not what it seemed to be."""
        self.topology.is_doubtful = True


def _is_hopeless(error: RzschedError | None) -> bool:
    return isinstance(error, CredentialsRefused | ServerUnsuitable)


class SyncClusterLink(_Cluster):
    """Calls over blocking connections to the nodes of a cluster; see `SyncLink`."""

    apart = True

    def __init__(self, url: str, settings: LinkSettings) -> None:
        super().__init__(url, settings)
        self._links: dict[Address, SyncLink] = {}

    def _link(self, node: Address) -> SyncLink:
        found = self._links.get(node)
        if found is None:
            found = self._links[node] = SyncLink(node_url(self._url, node), self._node_settings())
        return found

    def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls side by side and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return raise_first(self.outcomes(steps))

    def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls side by side; give each one's answer, or the exception it ends with."""
        rounds = self._rounds(steps)
        while not rounds.done:
            error = self._refresh() if self.topology.is_doubtful else None
            if error is None:
                self._run(rounds)
            delay = rounds.delay() if error is None else rounds.unreached(error)
            if delay:
                time.sleep(delay)
        return rounds.outcomes

    def _run(self, rounds: Rounds) -> None:
        """Send to every node, then read from each."""
        parcels = rounds.parcels()
        talks = [self._link(parcel.node).conversation(parcel.exchange) for parcel in parcels]
        failures: list[Exception | None] = [None] * len(parcels)
        try:
            for _ in ("send", "read"):
                for index, talk in enumerate(talks):
                    failures[index] = failures[index] or _advance(talk)
        finally:
            for talk in talks:
                talk.close()  # type: ignore[attr-defined]
        for parcel, failure in zip(parcels, failures, strict=True):
            if failure is not None:
                self._link(parcel.node).drop_idle()
            rounds.take(parcel, failure)

    def _refresh(self) -> RzschedError | None:
        """Take the picture anew from the first node that answers; give what went wrong where none does."""
        error: RzschedError | None = None
        for node in self.topology.candidates():
            exchange = Exchange([slots_call()], self.where)
            error = self._learn(node, exchange, self._link(node).attempt(exchange))
            if error is None or _is_hopeless(error):
                break
        return error

    def listener_pool(self) -> Any:
        """Give the pool of a node that answers: any node hears what is published at any other."""
        for node in self.topology.candidates():
            pool = self._link(node).listener_pool()
            try:
                connection = pool.get_connection()
                try:
                    connection.send_command("PING")
                    connection.read_response()
                    return pool
                except BaseException:
                    connection.disconnect()
                    raise
                finally:
                    pool.release(connection)
            except FOREIGN:
                self.topology.suspect(node)
        raise ConnectionFailed(f"can't reach any node of the cluster at {self.where}")

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def _advance(talk: Iterator[None]) -> Exception | None:
    try:
        next(talk, None)
    except FOREIGN as error:
        return error
    return None


class AsyncClusterLink(_Cluster):
    """Calls over asyncio connections to the nodes of a cluster, for one event loop; see `AsyncLink`."""

    apart = True

    def __init__(self, url: str, settings: LinkSettings) -> None:
        super().__init__(url, settings)
        self._links: dict[Address, AsyncLink] = {}
        self._refreshing: asyncio.Lock | None = None

    def _link(self, node: Address) -> AsyncLink:
        found = self._links.get(node)
        if found is None:
            found = self._links[node] = AsyncLink(node_url(self._url, node), self._node_settings())
        return found

    async def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls side by side and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return raise_first(await self.outcomes(steps))

    async def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls side by side; give each one's answer, or the exception it ends with."""
        rounds = self._rounds(steps)
        while not rounds.done:
            error = await self._refresh() if self.topology.is_doubtful else None
            if error is None:
                await self._run(rounds)
            delay = rounds.delay() if error is None else rounds.unreached(error)
            if delay:
                await asyncio.sleep(delay)
        return rounds.outcomes

    async def _run(self, rounds: Rounds) -> None:
        parcels = rounds.parcels()
        if len(parcels) == 1:
            failures = [await self._attempt(parcels[0])]
        else:
            failures = list(await asyncio.gather(*map(self._attempt, parcels)))
        for parcel, failure in zip(parcels, failures, strict=True):
            rounds.take(parcel, failure)

    async def _attempt(self, parcel: Parcel) -> Exception | None:
        link = self._link(parcel.node)
        failure = await link.attempt(parcel.exchange)
        if failure is not None:
            await link.drop_idle()
        return failure

    async def _refresh(self) -> RzschedError | None:
        """Take the picture anew from the first node that answers; give what went wrong where none does."""
        self._refreshing = self._refreshing or asyncio.Lock()
        async with self._refreshing:
            error: RzschedError | None = None
            for node in self.topology.candidates() if self.topology.is_doubtful else []:
                exchange = Exchange([slots_call()], self.where)
                error = self._learn(node, exchange, await self._link(node).attempt(exchange))
                if error is None or _is_hopeless(error):
                    break
            return error

    async def at(self, route: Argument) -> AsyncLink:
        """Give the link to the node that owns a key: for what must stay on one connection."""
        error = await self._refresh() if self.topology.is_doubtful else None
        node = self.topology.owner(route)
        if error is not None or node is None:
            raise error or ConnectionFailed(f"no node of the cluster at {self.where} serves all slots")
        return self._link(node)

    async def listener_pool(self) -> Any:
        """Give the pool of a node that answers: any node hears what is published at any other."""
        for node in self.topology.candidates():
            pool = await self._link(node).listener_pool()
            try:
                connection = await pool.get_connection()
                try:
                    await connection.send_command("PING")
                    await connection.read_response(timeout=PING_S)
                    return pool
                except BaseException:
                    await connection.disconnect(nowait=True)
                    raise
                finally:
                    await pool.release(connection)
            except FOREIGN:
                self.topology.suspect(node)
        raise ConnectionFailed(f"can't reach any node of the cluster at {self.where}")

    async def aclose(self) -> None:
        for link in self._links.values():
            await link.aclose()
