"""How operations have their writes made durable, as plans; see `durability` for what a wait means.

What a server can't do is said before anything is written. Whether it keeps an append-only file is asked once by each
client, and again after a wait that was not met.
"""

from collections.abc import Sequence
from typing import Any

from rzsched import calls
from rzsched.config import Durability, check_durability
from rzsched.durability import Durably, Wait, fsyncs_always
from rzsched.errors import NotDurable, ServerUnsuitable
from rzsched.exchange import PlainStep, Step
from rzsched.keys import Partition
from rzsched.space import Plan, Space

Placed = tuple[Partition, PlainStep]


def wait_for(space: Space, durability: Durability | None) -> Plan[Wait | None]:
    """Say what a call waits for, None for nothing; raise ServerUnsuitable where the server can't have it."""
    settings = space.settings
    level = settings.durability if durability is None else check_durability(durability)
    if level == "memory":
        return None
    timeout_ms = int(min(settings.durability_timeout_s, settings.command_timeout_s * 0.9) * 1000)
    if level == "replicated":
        return Wait("WAIT", settings.replicas, max(timeout_ms, 1))
    if space.fsync is None:
        space.fsync = yield from _find_fsync(max(timeout_ms, 1))
    return space.fsync


def _find_fsync(timeout_ms: int) -> Plan[Wait]:
    has_waitaof, is_on = yield [
        calls.command("COMMAND", "INFO", "WAITAOF", read=_knows),
        calls.command("INFO", "persistence", read=lambda info: b"aof_enabled:1" in info),
    ]
    if not is_on:
        raise ServerUnsuitable(
            "durability 'fsync' needs the server's append-only file, which is off: set appendonly yes and appendfsync "
            "everysec or always (redis-cli CONFIG SET appendonly yes, and in redis.conf), or ask for less"
        )
    if has_waitaof:
        return Wait("WAITAOF", 0, timeout_ms)
    (always,) = yield [calls.command("CONFIG", "GET", "*append*", read=fsyncs_always)]
    if not always:
        raise ServerUnsuitable(
            "durability 'fsync' needs WAITAOF, which this server lacks (Redis 7.2 or Valkey have it): upgrade it, or "
            "set appendfsync always and no-appendfsync-on-rewrite no (redis-cli CONFIG SET, and in redis.conf)"
        )
    return Wait("CONFIG", 0, timeout_ms)


def _knows(answer: Any) -> bool:
    """Read COMMAND INFO, which tells nothing of a command that is unknown."""
    return bool(answer.get("waitaof") if isinstance(answer, dict) else answer and answer[0])


def keep(space: Space, wait: Wait | None, steps: Sequence[Placed]) -> Plan[tuple[list[Any], str]]:
    """Run steps, together, and wait for all of them at once; give their answers, and what they lack ('' nothing)."""
    if wait is None:
        answers = yield [step for _, step in steps]
        return answers, ""
    durably: list[Step] = [Durably(place, step, wait) for place, step in steps]
    kept = yield durably
    lack = next((each.lack for each in kept if each.lack), "")
    if lack:
        space.fsync = None
    return [each.answer for each in kept], lack


def confirm(space: Space, wait: Wait | None, places: Sequence[Partition]) -> Plan[str]:
    """Wait for what was written by now; give what it lacks."""
    if wait is None or not places:
        return ""
    _, lack = yield from keep(space, wait, [(place, calls.command("PING", read=bool)) for place in places])
    return lack


def hold_to(ids: Sequence[str], lack: str) -> None:
    """Raise NotDurable where something is lacking."""
    if lack:
        raise NotDurable(ids, lack)
