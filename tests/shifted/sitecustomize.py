"""Give a Python process a wrong host clock: it runs at start-up, where this folder comes first on PYTHONPATH.

$RZSCHED_TEST_CLOCK names a file that says by how many seconds the clock is off; a change of it (by `os.replace`) steps
the clock of the running process. Monotonic clocks are left alone, as a step of a real clock leaves them. On SIGUSR1 the
process writes how far off its clocks are by now to the file of that name with `.told` added.
"""

import datetime
import os
import signal
import time
from typing import Any, Self

_real_ns = time.time_ns
_real_datetime = datetime.datetime


def _shift_ns(path: str) -> int:
    with open(path, encoding="ascii") as said:
        return int(float(said.read()) * 1e9)


class _AnyDatetime(type):
    """Count real datetimes, which C code makes, as shifted ones."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real_datetime)


def _shift(path: str) -> None:
    def time_ns() -> int:
        return _real_ns() + _shift_ns(path)

    def shifted_time() -> float:
        return time_ns() / 1e9

    class Shifted(_real_datetime, metaclass=_AnyDatetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    def tell(*_: object) -> None:
        """Measure from outside of what was replaced, as any code of the process would read it."""
        real = time.clock_gettime(time.CLOCK_REALTIME)
        read = (time.time(), time.time_ns() / 1e9, datetime.datetime.now(datetime.UTC).timestamp())
        with open(f"{path}.new", "w", encoding="ascii") as told:
            told.write(" ".join(str(each - real) for each in read))
        os.replace(f"{path}.new", f"{path}.told")

    clocks: Any = datetime
    time.time, time.time_ns, clocks.datetime = shifted_time, time_ns, Shifted
    signal.signal(signal.SIGUSR1, tell)


if "RZSCHED_TEST_CLOCK" in os.environ:
    _shift(os.environ["RZSCHED_TEST_CLOCK"])
