"""What a chaos run can be played on, by name."""

from collections.abc import Callable, Mapping

from bench.chaos.copies import ClusterServers, SentinelServers
from bench.chaos.servers import OneServer, Servers

SERVICES: Mapping[str, Callable[[], Servers]] = {
    "redis": lambda: OneServer("redis"),
    "valkey": lambda: OneServer("valkey"),
    "redis62": lambda: OneServer("redis62"),
    "sentinel": SentinelServers,
    "cluster": ClusterServers,
}
