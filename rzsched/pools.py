"""Pools of connections to what a server URL names."""

import asyncio
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis._parsers import Encoder
from redis.backoff import NoBackoff
from redis.connection import PythonRespSerializer
from redis.retry import Retry

from rzsched import embedded, sentinel
from rzsched.encryption import AsyncTlsConnection, TlsConnection
from rzsched.urls import is_sentinel

SILENCE_S = 5.0
"""How long a server behind sentinels may take to answer: a master that stands still gives no other sign."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How patient a link is. `retry_s` bounds how long it goes on trying; 0 leaves retrying to its owner.

    Otherwise it tries at least twice, since the first try may have met a connection that leads nowhere. Without
    `check_fitness` it talks to any server, to find out what is wrong with it.
    """

    connect_timeout_s: float = 3.0
    command_timeout_s: float | None = 15.0
    retry_s: float = 1.0
    max_connections: int = 1000
    check_fitness: bool = True


def _pool_arguments(url: str, settings: LinkSettings, said: dict[str, Any]) -> dict[str, Any]:
    timeout_s = settings.command_timeout_s
    if is_sentinel(url):
        timeout_s = min(timeout_s or SILENCE_S, SILENCE_S)
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": settings.max_connections,
        **said,
    }


_ANSWER_FORM = {"protocol": 2, "decode_responses": False}
"""What the readers of answers rely on: no option in a URL may change it."""


_PIECE_BYTES = 6000


def make_pool(url: str, settings: LinkSettings) -> Any:
    """Make a pool of blocking connections to what a URL names."""
    arguments = _pool_arguments(url, settings, {})
    if is_sentinel(url):
        pool: Any = sentinel.master_pool(url, arguments)
    else:
        if url.startswith("rediss://"):
            arguments["connection_class"] = TlsConnection
        pool = redis.ConnectionPool.from_url(embedded.resolve(url), **arguments)
    # For a handshake with a number in it: see `packing.pack_command`.
    encoder = Encoder("utf-8", "strict", decode_responses=False)  # type: ignore[no-untyped-call]
    packer = PythonRespSerializer(_PIECE_BYTES, encoder.encode)
    pool.connection_kwargs.update(_ANSWER_FORM, command_packer=packer)
    return pool


async def make_async_pool(url: str, settings: LinkSettings, said: dict[str, Any]) -> Any:
    """Make a pool of asyncio connections to what a URL names."""
    arguments = _pool_arguments(url, settings, said)
    if is_sentinel(url):
        pool: Any = sentinel.async_master_pool(url, arguments)
    else:
        if url.startswith("embedded:"):
            # Starting an embedded server takes a moment, which the loop should not stand still for.
            url = await asyncio.to_thread(embedded.resolve, url)
        if url.startswith("rediss://"):
            arguments["connection_class"] = AsyncTlsConnection
        pool = redis.asyncio.ConnectionPool.from_url(url, **arguments)
    pool.connection_kwargs.update(_ANSWER_FORM, **said)
    return pool
