"""Redis Cluster for tests: masters, and replicas where wanted, each a real server on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rzsched.topology import slot_of
from tests.certificates import Certificates
from tests.servers import Server

SLOTS = 16384
PATIENCE_S = 30.0
NODE_TIMEOUT_MS = 1500
_POLL_S = 0.02


class Node:
    """One server of a cluster, and a plain connection to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.redis: Any = server.raw
        self.id = self.told("CLUSTER", "MYID").decode()

    @property
    def port(self) -> int:
        return self.server.port

    def told(self, *words: Any) -> Any:
        return self.redis.execute_command(*words)

    @property
    def is_master(self) -> bool:
        return bool(self.redis.info("replication")["role"] == "master")

    def all_keys(self) -> list[bytes]:
        return list(self.redis.scan_iter(count=1000))


class Cluster:
    """A cluster of `masters` masters with `replicas` replicas each; the slots are dealt out evenly."""

    def __init__(self, kind: str, folder: Path, *, masters: int = 3, replicas: int = 0, password: str | None = None,
                 options: tuple[str, ...] = (), tls: Certificates | None = None) -> None:
        self._stack = ExitStack()
        self.kind = kind
        self.password = password
        self._folder = folder
        self._options = (*options, "--tls-cluster", "yes") if tls else options
        self._tls = tls
        self.masters: list[Node] = []
        self.replicas: list[Node] = []
        try:
            self.masters = [self._start(f"master-{number}") for number in range(masters)]
            self.replicas = [self._start(f"replica-{number}") for number in range(masters * replicas)]
            self._form()
        except BaseException:
            self._stack.close()
            raise

    def _start(self, name: str) -> Node:
        folder = self._folder / name
        folder.mkdir(parents=True)
        auth = ("--masterauth", self.password) if self.password else ()
        server = Server.start(
            self.kind, "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS),
            # A node names a replica only once something was replicated: a ping, at the latest.
            "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *auth, *self._options,
            dir=folder, password=self.password, tls=self._tls,
        )  # fmt: skip
        self._stack.enter_context(server)
        return Node(server)

    def _form(self) -> None:
        first, step = self.masters[0], SLOTS // len(self.masters)
        for number, node in enumerate(self.masters):
            last = SLOTS - 1 if node is self.masters[-1] else (number + 1) * step - 1
            node.told("CLUSTER", "ADDSLOTS", *range(number * step, last + 1))
            node.told("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.told("CLUSTER", "MEET", "127.0.0.1", first.port)
        self._wait("all nodes know each other", self._all_met)
        for number, node in enumerate(self.replicas):
            node.told("CLUSTER", "REPLICATE", self.masters[number % len(self.masters)].id)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        self._wait("the cluster is whole", self._is_whole)

    def _all_met(self) -> bool:
        return all(len(node.told("CLUSTER", "NODES").splitlines()) == len(self.nodes) for node in self.nodes)

    def _is_whole(self) -> bool:
        linked = (node.redis.info("replication").get("master_link_status") == "up" for node in self.replicas)
        listed = (sum(len(each) - 2 for each in node.told("CLUSTER", "SLOTS")) for node in self.nodes)
        return (all(self.state_of(node) == "ok" for node in self.nodes) and all(linked)
                and all(count == len(self.nodes) for count in listed))

    @staticmethod
    def state_of(node: Node) -> str:
        told = dict(line.split(":", 1) for line in node.told("CLUSTER", "INFO").decode().splitlines() if ":" in line)
        return str(told["cluster_state"])

    def _wait(self, what: str, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"it never came: {what}"
            time.sleep(_POLL_S)

    @property
    def nodes(self) -> list[Node]:
        return [*self.masters, *self.replicas]

    @property
    def live(self) -> list[Node]:
        return [node for node in self.nodes if node.server.running]

    @property
    def url(self) -> str:
        credentials = f":{self.password}@" if self.password else ""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.masters)
        if self._tls:
            return f"rediss+cluster://{credentials}{hosts}/?{self._tls.query}"
        return f"redis+cluster://{credentials}{hosts}/"

    def flush(self) -> None:
        for node in self.live:
            if node.is_master:
                node.redis.flushall()

    def owner(self, key: str) -> Node:
        """Give the master that owns a key, by what the live nodes say."""
        slot = slot_of(key)
        for first, last, server, *_ in _ranges(self.live[0]):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == server)
        raise AssertionError(f"nobody owns slot {slot}")

    def replica_of(self, master: Node) -> Node:
        """Give the live replica of a master."""
        return next(
            node for node in self.live if not node.is_master
            and node.redis.info("replication")["master_port"] == master.port
        )  # fmt: skip

    def wait_for_replicas(self) -> None:
        """Wait until every replica has what its master has by now."""
        for node in self.masters:
            written = node.redis.info("replication")["master_repl_offset"]
            self._wait("the replica catches up", lambda: int(
                node.redis.info("replication")["slave0"]["offset"]) >= written)  # noqa: B023

    def wait_for_failover(self, dead: Node) -> None:
        """Wait until the live nodes agree that another one has taken over."""
        self._wait("a replica takes over", lambda: all(
            self.state_of(node) == "ok" and dead.port not in {server for _, _, server in _ranges(node)}
            for node in self.live
        ))  # fmt: skip

    def move_slot(self, key: str, target: Node, *, half_way: Callable[[], Any] | None = None) -> None:
        """Move the slot of a key to another master, key by key; `half_way` is called when half of them are there."""
        source, slot = self.owner(key), slot_of(key)
        target.told("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.told("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        auth = ("AUTH", self.password) if self.password else ()
        names = source.told("CLUSTER", "GETKEYSINSLOT", slot, 1_000_000)
        for number, name in enumerate(names):
            if half_way is not None and number == len(names) // 2:
                half_way()
            source.told("MIGRATE", "127.0.0.1", target.port, name, 0, 5000, *auth)
        while left := source.told("CLUSTER", "GETKEYSINSLOT", slot, 1000):
            for name in left:
                source.told("MIGRATE", "127.0.0.1", target.port, name, 0, 5000, *auth)
        for node in (target, source):
            node.told("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        for node in self.nodes:
            node.redis.close()
        self._stack.close()


def _ranges(node: Node) -> list[tuple[int, int, int]]:
    return [(first, last, int(servers[0][1])) for first, last, *servers in node.told("CLUSTER", "SLOTS")]
