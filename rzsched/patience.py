"""How long to go on trying, and how often to look where the master is."""

import math
import random
import select
import time
from collections.abc import Iterator

from rzsched import sentinel
from rzsched.errors import ServerUnsuitable
from rzsched.exchange import Exchange
from rzsched.refusals import CredentialsRefused, translate
from rzsched.urls import is_sentinel

FAILOVER_S = 10.0
"""How long a call goes on trying while sentinels make another server the master."""
LOOK_S = 1.0
"""How often a link in use asks its sentinels where the master is.

What is written meanwhile to a master that was replaced while it lived is lost, unless min-replicas-to-write forbids it.
A call that is `replicated` notices (see `copies`).
"""
SLOW_S = 0.5
SLOW_LOOK_S = 10.0


def pause(seconds: float) -> None:
    """Sleep. Not `time.sleep`: under libfaketime 0.9, which tests of clocks are made with, that fails (EINVAL)."""
    select.select((), (), (), max(0.0, seconds))


def backoff_delays(total_s: float = math.inf, *, first_s: float = 0.02, most_s: float = 1.0) -> Iterator[float]:
    """Yield jittered waits that grow from `first_s` to `most_s`, until they add up to `total_s`."""
    spent, step = 0.0, first_s
    while spent < total_s:
        delay = step * random.uniform(0.5, 1.5)
        spent += delay
        step = min(step * 2, most_s)
        yield delay


class Persistence:
    """Whether and when to try again, for one exchange."""

    def __init__(self, retry_s: float, url: str, where: str) -> None:
        self._retry_s = retry_s
        self._fails_over = is_sentinel(url)
        self._delays = backoff_delays()
        self._where = where
        self._begun_s = time.monotonic()
        self._tries = 0

    def delay_after(self, exchange: Exchange, error: Exception | None) -> float | None:
        """Say how long to wait before the next try; None: it is over, and every call has its outcome."""
        self._tries += 1
        if error is not None:
            exchange.lost(error)
        failure = error or exchange.refusal
        if exchange.done or failure is None:
            return None
        delay = self._delay(failure)
        if delay is None:
            exchange.give_up(failure)
        return delay

    def _delay(self, failure: Exception) -> float | None:
        if not self._retry_s or isinstance(translate(failure, self._where), CredentialsRefused | ServerUnsuitable):
            return None
        patient = self._fails_over and not isinstance(failure, sentinel.NoMaster)
        left_s = self._begun_s + (FAILOVER_S if patient else self._retry_s) - time.monotonic()
        if left_s <= 0 and self._tries > 1:
            return None
        return min(next(self._delays), max(left_s, 0.01))


class Sight:
    """When a link last asked where the master is, and what it was told."""

    def __init__(self, url: str) -> None:
        self.is_needed = is_sentinel(url)
        self._look_at_s = 0.0 if self.is_needed else math.inf
        self._began_s = 0.0
        self._master: sentinel.Address | None = None

    def is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return False
        self._began_s, self._look_at_s = now_s, math.inf
        return True

    def looked(self) -> None:
        """Set the next time. Sentinels that do not answer hold callers up: those are asked less often."""
        now_s = time.monotonic()
        self._look_at_s = now_s + (LOOK_S if now_s - self._began_s < SLOW_S else SLOW_LOOK_S)

    def has_moved(self, known: sentinel.Address | None, master: sentinel.Address) -> bool:
        """Note where the master is now, and say whether that is another place than the last time.

        `known`: where the pool's connections lead to, for the first look. Later on the pool does not tell: it follows
        the master with every new connection, whatever others still hang on.
        """
        before, self._master = self._master or known, master
        return before not in {None, master}
