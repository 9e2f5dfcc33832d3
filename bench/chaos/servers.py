"""The kinds of server that a chaos run can be played on, all with one face."""

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import redis

from bench.chaos.nodes import DURABLE, Node

LITTLE_MEMORY = "1mb"


class Servers(Protocol):
    """What the faults need of a server, or of several that make one service.

    `primaries` are the nodes that take writes now. `kill_primary` ends one as a crash would, and `heal` starts again
    what it ended. `pause_primary` freezes one, and gives what lets it go on. `copies` is how many replicas a primary
    has: any of them may take over from one that is away, so a write is safe when all of them have it.
    `partitions` is how many a queue has.
    """

    url: str
    proxied_port: int | None
    copies: int
    partitions: int

    @property
    def primaries(self) -> list[Node]: ...
    def kill_primary(self) -> None: ...
    def heal(self) -> None: ...
    def pause_primary(self) -> Callable[[], None]: ...
    def close(self) -> None: ...


class OneServer:
    """A server alone; after a crash it goes on from its append-only file."""

    copies = 0
    partitions = 1

    def __init__(self, kind: str) -> None:
        self._node = Node(kind, DURABLE).start()
        self.url = f"redis://127.0.0.1:{self._node.port}/0"
        self.proxied_port: int | None = self._node.port

    @property
    def primaries(self) -> list[Node]:
        return [self._node]

    def kill_primary(self) -> None:
        self._node.kill()

    def heal(self) -> None:
        self._node.restart()

    def pause_primary(self) -> Callable[[], None]:
        return pause(self._node)

    def close(self) -> None:
        self._node.close()


def on_each(servers: Servers, step: Callable[[Any], object]) -> None:
    """Send something to each node that takes writes; one that is away is left out."""
    for node in servers.primaries:
        with suppress(redis.RedisError):
            step(node.redis)


def pause(node: Node) -> Callable[[], None]:
    """Freeze a node; give what lets it go on."""
    node.signal(signal.SIGSTOP)
    return lambda: node.signal(signal.SIGCONT)


def used_memory(servers: Servers) -> int:
    return sum(int(node.redis.info("memory")["used_memory"]) for node in servers.primaries)


def key_count(servers: Servers) -> int:
    return sum(int(node.redis.dbsize()) for node in servers.primaries)


def destroy_groups(connection: Any) -> None:
    """Delete the consumer group of every ready stream."""
    for stream in list(connection.scan_iter("rz:{*}:ready:*", count=1000)):
        connection.xgroup_destroy(stream, "workers")
