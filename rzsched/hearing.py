"""Hearing what is published, and noticing when nothing can be heard any more."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import redis

DEAF_S = 2.5
"""How long a silence is before the server is asked whether it is still there, and how long it may take to answer."""
SUBSCRIBE_S = 5.0


async def messages(listener: Any, subscribed: Callable[[], object] | None = None) -> AsyncIterator[dict[str, Any]]:
    """Give the messages of a subscription of redis-py, which must not ignore those about subscribing.

    `subscribed` is told when a channel is listened to: what was said there before is to be found in another way.

    Raises redis.ConnectionError where the server does not answer, so that the listener may go to another one: a
    connection that is half open, or a process that stands still, would otherwise be listened to for ever.
    """
    asked = False
    while True:
        message = await listener.get_message(timeout=DEAF_S)
        if message is not None:
            asked = False
            if message["type"] == "message":
                yield message
            elif message["type"] == "subscribe" and subscribed is not None:
                subscribed()
        elif asked:
            raise redis.ConnectionError("the server has not answered for too long")
        else:
            await listener.ping()
            asked = True
