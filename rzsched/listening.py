"""Subscriptions that notice when nobody speaks any more.

A subscriber only reads. So it would wait for ever on a connection that leads nowhere, and hear nothing from a master
that has been demoted. After a quiet while it asks for a sign of life, and it ends when its link has moved on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import NoPermissionError

from rzsched.links import AnyAsyncLink
from rzsched.refusals import translate

QUIET_S = 2.0
"""How long a subscription may be quiet before it has to show that it lives, and how long it has for that."""
SUBSCRIBE_S = 5.0


class Listener:
    """A subscription of a link's; whatever ends it raises what redis-py raises."""

    def __init__(self, link: AnyAsyncLink, pubsub: Any, epoch: int, subscribed: Callable[[], object]) -> None:
        self._link = link
        self._subscribed = subscribed
        self._pubsub = pubsub
        self._epoch = epoch
        self._is_asked = False

    async def subscribe(self, *channels: str) -> None:
        async with asyncio.timeout(SUBSCRIBE_S):
            await self._pubsub.subscribe(*channels)

    async def unsubscribe(self, *channels: str) -> None:
        await self._pubsub.unsubscribe(*channels)

    async def next(self) -> dict[str, Any] | None:
        """Give the next message, or None after a while without one."""
        message: dict[str, Any] | None = await self._pubsub.get_message(timeout=QUIET_S)
        if message is None:
            if self._is_asked:
                raise redis.ConnectionError("the server has gone silent")
            await self._link.look()
        if self._epoch != self._link.epoch:
            raise redis.ConnectionError("the link has moved on")
        if message is not None:
            self._is_asked = False
            if message["type"] == "subscribe":
                self._subscribed()
            return message if message["type"] == "message" else None
        await self._pubsub.ping()
        self._is_asked = True
        return None


class Deafness:
    """Why a process does not hear others: said once where no waiting would end it, for all else goes on without."""

    def __init__(self, log: logging.Logger, where: str) -> None:
        self._log = log
        self._where = where
        self._is_said = False

    def failed(self, error: Exception) -> None:
        if not isinstance(error, NoPermissionError) or self._is_said:
            return self._log.debug("listening again: %s", type(error).__name__)
        self._is_said = True
        self._log.warning("not told by others, looking now and then: %s", translate(error, self._where))


@asynccontextmanager
async def listening(link: AnyAsyncLink, subscribed: Callable[[], object] = bool) -> AsyncIterator[Listener]:
    """Open a subscription, yet to no channel.

    `subscribed` is called when a channel is listened to: what was said there before is to be found in another way.
    """
    epoch = link.epoch
    connections = redis.asyncio.Redis(connection_pool=await link.listener_pool())
    # What confirms a subscription is a sign of life too: ignored, it would look like silence.
    async with connections.pubsub() as pubsub:
        yield Listener(link, pubsub, epoch, subscribed)
