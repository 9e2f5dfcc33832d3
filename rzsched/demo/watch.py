"""Tell what happens as it happens: look at the queue's counters and the books, and say what has changed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rzsched.client import Client
from rzsched.demo.customers import QUEUE
from rzsched.demo.ledger import Books

_LOOK_EVERY_S = 0.1
_MILESTONE = 50
Tell = Callable[[str], None]


@dataclass(slots=True)
class Watch:
    client: Client
    books: Books
    tell: Tell
    _next_look: float = 0.0
    _seen: dict[str, int] = field(default_factory=dict)

    def look(self, *, at_once: bool = False) -> None:
        """Look, unless the last look was a moment ago: what happens together is told together."""
        if time.monotonic() < self._next_look and not at_once:
            return
        stats = self.client.queue_stats(QUEUE)
        self._on_rise("retried", min(1, stats.failed), lambda _: "an attempt failed; such are retried")
        self._on_rise("dead", stats.dead, self._tell_dead)
        self._on_rise("recovered", stats.recovered,
                      lambda more: f"{more} runs recovered from silent workers, whose leases ran out")
        self._on_rise("milestone", self.books.count("invoices") // _MILESTONE, self._tell_milestone)
        self._on_rise("refused", self.books.count("refused"),
                      lambda more: f"the books refused {more} stale writes, since a greater fence has written")
        self._on_rise("stale", stats.stale, lambda more: f"the server refused {more} stale finishes")
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def _on_rise(self, name: str, count: int, text: Callable[[int], str]) -> None:
        before = self._seen.get(name, 0)
        if count > before:
            self._seen[name] = count
            self.tell(text(count - before))

    def _tell_dead(self, more: int) -> str:
        job = self.client.list_dead(QUEUE, more)[-1]
        return f"{job.id} is dead after {job.attempts} attempts: {job.error}"

    def _tell_milestone(self, _: int) -> str:
        return f"{self.books.count('invoices')} invoices are written"
