"""Servers with copies: a primary and replicas under sentinels, and a cluster of three primaries with a replica each."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import redis

from bench.chaos.nodes import COPIED, Node
from bench.chaos.servers import pause

KIND = "valkey"
SERVICE = "jobs"
DOWN_AFTER_MS = 1500
READY_TIMEOUT_S = 60.0


def until(condition: Callable[[], Any], what: str, limit_s: float = READY_TIMEOUT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it never came: {what}")
        time.sleep(0.05)


class Sentinel(Node):
    """One that watches the primary, and has a replica take over; it writes what it learns into its own file."""

    def __init__(self, primary: Node) -> None:
        super().__init__(KIND, {})
        lines = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 6000",
        )
        (self.folder / "sentinel.conf").write_text("".join(f"{line}\n" for line in lines))

    def _config(self) -> list[str]:
        return [str(self.folder / "sentinel.conf"), "--sentinel"]


class _Copies:
    """What both kinds share: nodes of which some are primaries, and one that is down at times."""

    copies = 1
    partitions = 1
    proxied_port: int | None = None

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._down: list[Node] = []
        self._turn = count()

    @property
    def primaries(self) -> list[Node]:
        return [node for node in self.nodes if node.is_primary()]

    def _next_primary(self) -> Node:
        """Take the primaries in turn."""
        until(lambda: self.primaries, "a primary")
        primaries = self.primaries
        return primaries[next(self._turn) % len(primaries)]

    def kill_primary(self) -> None:
        node = self._next_primary()
        node.kill()
        self._down.append(node)

    def heal(self) -> None:
        while self._down:
            self._down.pop().restart()

    def pause_primary(self) -> Callable[[], None]:
        return pause(self._next_primary())

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class SentinelServers(_Copies):
    """One primary, two replicas and three sentinels."""

    copies = 2

    def __init__(self) -> None:
        super().__init__()
        first = Node(KIND, COPIED).start()
        self.nodes = [first, *(Node(KIND, {**COPIED, "replicaof": f"127.0.0.1 {first.port}"}) for _ in range(2))]
        for node in self.nodes[1:]:
            node.start()
        self._sentinels = [Sentinel(first) for _ in range(3)]
        for sentinel in self._sentinels:
            sentinel.start()
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self._sentinels)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}"
        until(lambda: all(self._knows_all(sentinel) for sentinel in self._sentinels), "sentinels that know all")

    @staticmethod
    def _knows_all(sentinel: Node) -> bool:
        told = sentinel.redis.sentinel_master(SERVICE)
        return (int(told["num-slaves"]), int(told["num-other-sentinels"])) == (2, 2)

    def close(self) -> None:
        super().close()
        for sentinel in self._sentinels:
            sentinel.close()


class ClusterServers(_Copies):
    """Three primaries that share the slots, and a replica of each."""

    SLOTS = 16_384
    partitions = 4

    def __init__(self) -> None:
        super().__init__()
        settings = {**COPIED, "cluster-enabled": "yes", "cluster-node-timeout": str(DOWN_AFTER_MS)}
        self.nodes = [Node(KIND, settings).start() for _ in range(6)]
        first = self.nodes[0]
        for node in self.nodes[1:]:
            first.redis.execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        for number, node in enumerate(self.nodes[:3]):
            bounds = (self.SLOTS * number // 3, self.SLOTS * (number + 1) // 3 - 1)
            node.redis.execute_command("CLUSTER ADDSLOTSRANGE", *bounds)
        until(lambda: self._say("cluster_known_nodes", "6"), "nodes that know each other")
        for number, node in enumerate(self.nodes[3:]):
            until(lambda: self._follow(node, self.nodes[number]), "a replica")  # noqa: B023 - it is called now
        until(lambda: self._say("cluster_state", "ok"), "a cluster that serves")
        until(lambda: len(self.primaries) == 3, "three primaries")
        self.url = f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes[:3])}/"

    def _say(self, name: str, value: str) -> bool:
        return all(node.redis.execute_command("CLUSTER INFO")[name] == value for node in self.nodes)

    def move_slot(self, key: str) -> None:
        """Move the slot of a key, with all its keys, to the next primary, as `redis-cli --cluster reshard` does."""
        primaries = self.primaries
        slot = primaries[0].redis.execute_command("CLUSTER KEYSLOT", key)
        names = {node.redis.execute_command("CLUSTER MYID"): node for node in primaries}
        source = next(name for name, node in names.items() if self._serves(node, slot))
        order = list(names)
        target = order[(order.index(source) + 1) % len(order)]
        names[target].redis.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source)
        names[source].redis.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target)
        while found := names[source].redis.execute_command("CLUSTER GETKEYSINSLOT", slot, 50):
            names[source].redis.execute_command(
                "MIGRATE", "127.0.0.1", names[target].port, "", 0, 5000, "REPLACE", "KEYS", *found
            )
        for node in (names[target], names[source], *primaries):
            node.redis.execute_command("CLUSTER SETSLOT", slot, "NODE", target)

    @staticmethod
    def _serves(node: Node, slot: int) -> bool:
        own = node.redis.execute_command("CLUSTER MYID")
        shares = node.redis.execute_command("CLUSTER SLOTS")
        return any(first <= slot <= last and primary[2] == own for first, last, primary, *_ in shares)

    @staticmethod
    def _follow(node: Node, primary: Node) -> bool:
        name = primary.redis.execute_command("CLUSTER MYID")
        try:
            return bool(node.redis.execute_command("CLUSTER REPLICATE", name))
        except redis.ResponseError:
            return False  # it has not heard of that one yet
