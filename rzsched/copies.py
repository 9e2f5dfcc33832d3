"""Whether the server that has a write is still the one that counts: what a `replicated` call asks behind its WAIT.

A master that stood still while a replica was promoted goes on as a master when it wakes, until its sentinels tell it
better: for a second or two it takes writes, and a replica that still follows it acknowledges them. All of them are lost
when the two join the new master. But the promoted replica follows it no more. So each `replicated` call looks at who
follows (`ROLE`), and where one is missing that was there at the last such call, asks that one what it is now.

It can't see what it never knew: a client whose first such call falls into that second is deceived all the same, and so
is one where the promoted replica can't be reached. `min-replicas-to-write`, set to all replicas, forbids even that.
"""

import contextlib
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from rzsched.urls import is_sentinel, read_sentinel_url

ASK_S = 1.0
"""How long a replica may take to be reached, and to answer."""
TAKEN_OVER = "another server has taken over from the one that has the write"
Address = tuple[str, int]
Attached = frozenset[Address]


def address_of(connection: Any) -> Address:
    return getattr(connection, "host", ""), getattr(connection, "port", 0)


def attached(role: Any) -> Attached | None:
    """Read which replicas a master names in its answer to ROLE; None where it tells nothing."""
    if isinstance(role, Exception) or role[0] != b"master":
        return None
    return frozenset((replica[0].decode(), int(replica[1])) for replica in role[2])


class Copies:
    """The replicas that each server had when a call last asked, for one link."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: dict[Address, Attached] = {}

    def note(self, server: Address, now: Attached | None) -> bool:
        """Note who follows a server; say whether somebody is missing, who is to be asked (`lack`)."""
        if now is None:
            return False
        if self._known.get(server, now) - now:
            return True
        self._known[server] = now
        return False

    def lack(self, server: Address, now: Attached | None) -> str:
        """Ask those that are missing what they are; say what that means for a write, '' for nothing. It blocks."""
        if now is None:
            return ""
        mine = self._ask(server).get("master_replid")
        told = {address: self._ask(address) for address in self._known[server] - now}
        # Who was promoted goes on from the history of the one it followed. A master that is not, and names another
        # history, is the one that was replaced: by this server.
        if mine and any((one.get("role"), one.get("master_replid2")) == ("master", mine) for one in told.values()):
            return TAKEN_OVER
        # A replica on its own may be promoted yet; one that is away can't be asked again and again.
        self._known[server] = now | {address for address, one in told.items() if one.get("role") == "slave"}
        return ""

    def _ask(self, address: Address) -> dict[str, Any]:
        """Ask a server for what it says of its replication; nothing where it can't be asked."""
        host, port = address
        options: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0), "socket_timeout": ASK_S,
                                   "socket_connect_timeout": ASK_S}  # fmt: skip
        with contextlib.closing(redis.Redis(host=host, port=port, **self._said(), **options)) as link:
            try:
                return dict(link.info("replication"))
            except (redis.RedisError, OSError):
                return {}

    def _said(self) -> dict[str, Any]:
        """Give what the URL says of all its servers: credentials and TLS."""
        url = read_sentinel_url(self._url).server_url if is_sentinel(self._url) else self._url
        told: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
        said = {name: value for name, value in told.items() if name in {"username", "password"} or name[:4] == "ssl_"}
        return said | ({"ssl": True} if url.startswith("rediss:") else {})
