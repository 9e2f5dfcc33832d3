"""End asyncio tasks, and be sure that they have ended; end a loop only when its own work has."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
_log = logging.getLogger("rzsched.worker")
AGAIN_S = 0.5


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a loop of its own, as `asyncio.run` does, but on when a task beside it raises SystemExit.

    The handlers of a worker may start tasks that nobody awaits; what such a task raises asyncio passes to the loop.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except SystemExit as error:
                if task.done():
                    raise
                _log.error("a task that a handler started raised SystemExit(%r): the worker goes on", error.code)


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
