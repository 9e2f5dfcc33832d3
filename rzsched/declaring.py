"""Registering the schedules that an App declares, when a process of it starts."""

import logging

from rzsched import schedules
from rzsched.app import App

_log = logging.getLogger("rzsched.worker")


async def declare_schedules(app: App) -> None:
    """Register what the App declares; remove what it owned before and declares no longer."""
    client = app.async_client
    removed = await client.run(schedules.declare(client.space, app.name, list(app.schedules.values())))
    for schedule_id in removed:
        _log.info("schedule removed, its App declares it no longer schedule=%s app=%s", schedule_id, app.name)


async def declare_and_leave(app: App) -> None:
    """Do the same for a process that has no other use for the App's client."""
    try:
        await declare_schedules(app)
    finally:
        await app.async_client.aclose()
