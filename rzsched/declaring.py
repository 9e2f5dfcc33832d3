"""Registering the schedules that an App declares, when a process of it starts."""

import logging

from rzsched import calls, keys, schedules
from rzsched.app import App
from rzsched.space import Plan

_log = logging.getLogger("rzsched.worker")


async def declare_schedules(app: App) -> None:
    """Register what the App declares; remove what it owned before and declares no longer."""
    client = app.async_client
    if app.schedules:
        await client.run(_note(keys.apps(app.namespace), app.name))
    removed = await client.run(schedules.declare(client.space, app.name, list(app.schedules.values())))
    for schedule_id in removed:
        _log.info("schedule removed, its App declares it no longer schedule=%s app=%s", schedule_id, app.name)


async def declare_again(app: App) -> None:
    """Declare the schedules once more where the server has forgotten them, with all its memory.

    Only there: what is merely missing may have been removed since, by a newer version of this App.
    """
    if app.schedules and not await app.async_client.run(_is_noted(keys.apps(app.namespace), app.name)):
        _log.warning("the server has lost its memory: schedules of app=%s are declared again", app.name)
        await declare_schedules(app)


def _note(registry: str, name: str) -> Plan[None]:
    yield [calls.command("SADD", registry, name, read=int)]


def _is_noted(registry: str, name: str) -> Plan[bool]:
    (answer,) = yield [calls.command("SISMEMBER", registry, name, read=int)]
    return bool(answer)


async def declare_and_leave(app: App) -> None:
    """Do the same for a process that has no other use for the App's client."""
    try:
        await declare_schedules(app)
    finally:
        await app.async_client.aclose()
