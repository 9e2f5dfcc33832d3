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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rzsched.calls import Argument
from rzsched.connect import AsyncLink, LinkSettings, SyncLink, raise_first
from rzsched.errors import ConnectionFailed, RzschedError, ServerUnsuitable
from rzsched.exchange import Exchange, Step
from rzsched.patience import pause
from rzsched.refusals import FOREIGN, CredentialsRefused, translate
from rzsched.rounds import Parcel, Rounds
from rzsched.topology import Address, Topology, slots_call
from rzsched.urls import cluster_addresses, describe_url, node_url

PING_S = 2.0
"""How soon a node must answer to be listened to."""


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
        return replace(self._settings, retry_s=0)

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
                pause(delay)
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
            if failure is not None or parcel.exchange.refused:
                self._link(parcel.node).move_on()
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
                pool.release(pool.get_connection())
            except FOREIGN:
                self.topology.suspect(node)
            else:
                return pool
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
    epoch = 0
    """Always the same: any node that lives hears what is published, and one that dies ends its subscriptions."""

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
        return await self._link(parcel.node).attempt(parcel.exchange)

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

    async def look(self) -> None:
        """Find nothing out: a cluster's nodes say themselves who owns what."""

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
                # Over all of it: a process that stands still is connected to, and says nothing then.
                async with asyncio.timeout(PING_S):
                    await _ping(pool)
            except FOREIGN:
                self.topology.suspect(node)
            else:
                return pool
        raise ConnectionFailed(f"can't reach any node of the cluster at {self.where}")

    async def aclose(self) -> None:
        for link in self._links.values():
            await link.aclose()


async def _ping(pool: Any) -> None:
    connection = await pool.get_connection()
    try:
        await connection.send_command("PING")
        await connection.read_response()
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)
