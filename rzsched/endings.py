"""End asyncio tasks, and be sure that they have ended."""

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.5


async def end_tasks(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel tasks and wait until they have ended, whatever they end with.

    One that goes on is cancelled again: in Python 3.11 `asyncio.wait_for`, which redis-py sends by, swallows a
    cancellation that comes in the moment in which it is done.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # taken, so that nobody is told that it never was
