"""Hooks: what a program wants to be called for when something becomes of its jobs."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

Hook = Callable[["JobEvent"], Any]
Event = Literal["started", "succeeded", "failed", "dead", "recovered", "stale"]
EVENTS: tuple[Event, ...] = ("started", "succeeded", "failed", "dead", "recovered", "stale")
_log = logging.getLogger("rzsched.app")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """What a hook is told. `error` is set for failed, dead, recovered and stale."""

    kind: Event
    job_id: str
    task: str = ""
    queue: str = ""
    attempt: int = 0
    worker: str = ""
    error: str | None = None


class Hooks(dict[Event, list[Hook]]):
    """The hooks of each event, in the order in which they were registered."""

    def __init__(self) -> None:
        super().__init__({event: [] for event in EVENTS})

    def register(self, event: Event) -> Callable[[Hook], Hook]:
        if event not in self:
            raise ValueError(f"no such event: {event!r}; there are {', '.join(EVENTS)}")

        def register(hook: Hook) -> Hook:
            self[event].append(hook)
            return hook

        return register

    def emit(self, event: JobEvent) -> list[Awaitable[Any]]:
        """Call the hooks of an event; give what async ones are still to be awaited."""
        pending: list[Awaitable[Any]] = []
        for hook in self[event.kind]:
            try:
                result = hook(event)
            except (Exception, SystemExit, KeyboardInterrupt):
                _log.exception("a %s hook failed", event.kind)
                continue
            if inspect.isawaitable(result):
                pending.append(result)
        return pending
