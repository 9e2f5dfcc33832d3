"""How a herd is moved: more due jobs than one batch holds."""

from rzsched.calls import Promotion

TURNS = 2
"""Batches that travel together while there is a herd: on the way, and for a turn at the interpreter, a scheduler waits
longer than the server works on one."""
ENOUGH_READY = 2_000
"""With 700 the worker went short of jobs in three of eight herds of 100,000, which then took a third longer."""
PAUSE_S = 0.01
"""A herd is moved at leisure once workers have enough to do: they need the server's time more."""
FEW = 10
"""A thousand a second: little to the server, and whoever sleeps has one soon."""


class Herd:
    """What the next look at a partition moves: `limit` jobs, in each of `turns` batches.

    Workers that are under way take due jobs themselves, which costs the server half of what it costs to move them
    first. So while they do, or have enough to read, only a few are moved, which wakes whoever sleeps. Where nobody is
    under way all are moved soon, and also where jobs differ in priority, for that counts only among ready ones.
    """

    def __init__(self, batch: int) -> None:
        self._batch = self.limit = batch
        self.turns = 1
        self._last: Promotion | None = None

    def looked(self, promotion: Promotion) -> float | None:
        """Learn from a look; give the seconds until the next, None where there is no herd."""
        moved, last, self._last = self.limit * self.turns, self._last, promotion
        if promotion.count < self.limit:
            self.limit, self.turns, self._last = self._batch, 1, None
            return None
        if promotion.left is not None and last is not None and last.left is not None:
            took = last.left - moved - promotion.left
            read = last.unread + moved - promotion.unread
            if took > 0 or (read > 0 and promotion.unread > moved):
                self.limit, self.turns = min(FEW, self._batch), 1
                return PAUSE_S
        self.limit, self.turns = self._batch, TURNS
        return PAUSE_S if promotion.unread > ENOUGH_READY else 0.0
