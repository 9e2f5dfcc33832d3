"""Free slots that an idle worker offers to the scheduler beside it: a due job is claimed in the step that moves it.

Otherwise the job wakes the worker's blocking read, the worker asks for the claim, and the job comes with its answer: a
third of the time from the due instant to the handler. A worker that is busy offers nothing: whoever is idle shall have
the job.

The two have loops on threads of their own. What is offered is written on the worker's loop alone; the scheduler reads
it once, just before it asks the server, and always says there what came of it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from rzsched.calls import Claims
from rzsched.keys import Partition

MOST_OFFERED = 8
"""Few: a herd is for all workers, and the step that moves it shall not be long."""
Filling: TypeAlias = tuple[Claims, float]
"""What was claimed, and the monotonic second at which it was asked for."""


@dataclass(slots=True, eq=False)
class Offer:
    """Slots of `worker` for due jobs of one partition: none until the worker has given some."""

    place: Partition
    worker: str
    lease_ms: int
    loop: asyncio.AbstractEventLoop
    slots: int = 0
    _filling: "asyncio.Future[Filling] | None" = field(default=None, init=False)

    def give(self, slots: int) -> "asyncio.Future[Filling]":
        """Offer slots; what comes of it is in the future. On the worker's loop, before `settle`."""
        self._filling = self.loop.create_future()
        self.slots = slots
        return self._filling

    def settle(self, filling: Filling | Exception) -> None:
        """Give the slots back with what fills them; an error where that is not known. On any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has left
            self.loop.call_soon_threadsafe(self._settle, filling)

    def _settle(self, filling: Filling | Exception) -> None:
        if self._filling is None or self._filling.cancelled():  # nothing was given, or the worker has left meanwhile
            return
        if isinstance(filling, Exception):
            self._filling.set_exception(filling)
        else:
            self._filling.set_result(filling)


Ask: TypeAlias = Callable[[Partition], Offer | None]
"""Ask the worker for an offer, on the scheduler's thread; None where it is surely not idle."""


class Asking:
    """The scheduler's side, for one partition: one offer at a time. Without `ask` there is never any."""

    def __init__(self, place: Partition, ask: Ask | None) -> None:
        self._place = place
        self._ask = ask
        self._offer: Offer | None = None

    def begin(self) -> None:
        """Ask, if nothing is offered yet."""
        if self._ask is not None and self._offer is None:
            self._offer = self._ask(self._place)

    def take(self) -> Offer | None:
        """Take what has been given by now, to settle it."""
        if self._offer is None or not self._offer.slots:
            return None
        offer, self._offer = self._offer, None
        return offer

    def end(self) -> None:
        """Give back what was not taken, and what is yet to be given."""
        if self._offer is not None:
            self._offer.settle((Claims(), 0.0))
            self._offer = None
