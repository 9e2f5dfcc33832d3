"""When to try again, and when to give up.

The rule: a job with `max_retries=n` has at most n + 1 attempts; the wait after attempt k is
`base * factor ** (k - 1)`, capped by `max`, then multiplied by a random factor in [1-jitter, 1+jitter].
"""

import random
import sys
from dataclasses import dataclass
from datetime import timedelta

# A century. Longer waits are mistakes, and this keeps every sum of times far from overflow.
MAX_DELAY_S = 36_525 * 86_400.0


def max_attempts(max_retries: int) -> int:
    """Return how many attempts a job may have, or raise ValueError."""
    if not _is_count(max_retries, 0):
        raise ValueError(f"max_retries must be an int from 0 on, not {_kind(max_retries)}")
    return max_retries + 1


def _is_count(value: object, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _number(name: str, value: object, low: float, high: float) -> float:
    if not (isinstance(value, (int, float)) and not isinstance(value, bool)):
        raise ValueError(f"{name} must be a number, not {_kind(value)}")
    # Compared before the conversion, which an int of 400 digits would not survive; nan fails it too.
    if not low <= value <= high:
        raise ValueError(f"{name} must be finite and from {low:g} to {high:g}, not {_kind(value)}")
    return float(value)


def _kind(value: object) -> str:
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20):
        return repr(value)
    return f"a value of type {type(value).__name__}"


@dataclass(frozen=True)
class Backoff:
    """Describe the growing waits between the attempts of a job; `base` and `max` are seconds.

    Raises ValueError for senseless values, a `base` above `max` among them.
    """

    base: float = 10.0
    factor: float = 3.0
    max: float = 3600.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        self._settle("max", 0, MAX_DELAY_S)
        self._settle("base", 0, self.max)
        self._settle("factor", 1, sys.float_info.max)
        self._settle("jitter", 0, 1)

    def _settle(self, name: str, low: float, high: float) -> None:
        # A float whatever was given, so that what is stored as text compares equal when it is read back.
        object.__setattr__(self, name, _number(f"backoff {name}", getattr(self, name), low, high))

    def delay(self, attempt: int, rng: random.Random | None = None) -> float:
        """Return the seconds to wait after that attempt (1-based), for any attempt however large."""
        if not _is_count(attempt, 1):
            raise ValueError(f"attempt must be an int from 1 on, not {_kind(attempt)}")
        return self._capped(attempt) * (rng or random).uniform(1 - self.jitter, 1 + self.jitter)

    def _capped(self, attempt: int) -> float:
        if self.base == 0:
            return 0.0
        try:
            # Beyond 2**53 an exponent is no exact float; by then the cap is reached or factor is 1.
            return min(self.max, self.base * self.factor ** min(attempt - 1, 2**53))
        except OverflowError:
            return self.max

    def to_text(self) -> str:
        """Write it as short plain text for a stored field, such as `10/3/3600/0.2`."""
        return "/".join(
            repr(value).removesuffix(".0") for value in (self.base, self.factor, self.max, self.jitter)
        )

    @classmethod
    def from_text(cls, text: str) -> "Backoff":
        """Read what `to_text` wrote, or raise ValueError."""
        parts = text.split("/")
        if len(parts) != 4:
            raise ValueError("a stored backoff is base/factor/max/jitter")
        return cls(*(float(part) for part in parts))


@dataclass(frozen=True)
class RetryPolicy:
    """Decide what follows a failed attempt."""

    max_retries: int = 3
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        max_attempts(self.max_retries)

    def next_delay(self, attempt: int, rng: random.Random | None = None) -> float | None:
        """Return the seconds until the next attempt, or None to give up."""
        delay_s = self.backoff.delay(attempt, rng)
        return delay_s if attempt < max_attempts(self.max_retries) else None


class Retry(Exception):
    """Raise it in a handler to be tried again, after a delay of the handler's own choice.

    Without `after` the job's backoff decides. Raises ValueError for a senseless `after`.
    """

    def __init__(self, after: float | timedelta | None = None, reason: str = "") -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        self.after_s = None if seconds is None else _number("after", seconds, 0.0, MAX_DELAY_S)
        self.reason = reason
        super().__init__(self.after_s, reason)

    def __str__(self) -> str:
        when = "retry" if self.after_s is None else f"retry after {self.after_s:g} s"
        return f"{when}: {self.reason}" if self.reason else when


class Dead(Exception):
    """Raise it in a handler to give the job up at once, whatever retries are left."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)
