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

    def look(self) -> None:
        """Look, unless the last look was a moment ago."""
        if time.monotonic() < self._next_look:
            return
        stats = self.client.queue_stats(QUEUE)
        self._on_rise("failed", stats.failed, self._tell_first_failure)
        self._on_rise("dead", stats.dead, self._tell_dead)
        self._on_rise("recovered", stats.recovered,
                      lambda more: f"{more} runs of silent workers recovered: their leases ran out")
        self._on_rise("milestone", self.books.count("invoices") // _MILESTONE, self._tell_milestone)
        self._on_rise("refused", self.books.count("refused"),
                      lambda more: f"the books refused {more} stale writes: a greater fence has written")
        self._on_rise("stale", stats.stale, lambda more: f"the server refused {more} stale finishes")
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def _on_rise(self, name: str, count: int, text: Callable[[int], str]) -> None:
        before = self._seen.get(name, 0)
        if count > before:
            self._seen[name] = count
            said = text(count - before)
            if said:
                self.tell(said)

    def _tell_first_failure(self, _: int) -> str:
        return "" if "told" in self._seen else self._first_failure()

    def _first_failure(self) -> str:
        self._seen["told"] = 1
        return "the first attempt failed: it is retried in about 0.2 s, as are all that follow"

    def _tell_dead(self, more: int) -> str:
        job = self.client.list_dead(QUEUE, more)[-1]
        return f"{job.id} is dead after {job.attempts} attempts: {job.error}"

    def _tell_milestone(self, _: int) -> str:
        return f"{self.books.count('invoices')} invoices are written"
