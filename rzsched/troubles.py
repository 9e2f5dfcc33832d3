"""Say what goes wrong once, when it lasts, and once more when it is over."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rzsched.errors import RzschedError

LASTS_S = 1.0
"""What is over sooner is not said of a part: mostly the whole is away, and says so itself."""


@dataclass(slots=True)
class _Trouble:
    since_s: float
    is_said: bool = False


class Troubles:
    """The troubles of a process: of the whole (''), and of its parts by name."""

    def __init__(self, log: logging.Logger, whole: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._whole = whole
        self._clock = clock
        self._now: dict[str, _Trouble] = {}

    def failed(self, part: str, error: Exception) -> None:
        """Hear that the whole, or a part, failed; say so if that is news."""
        now_s = self._clock()
        trouble = self._now.setdefault(part, _Trouble(now_s))
        is_news = not part or ("" not in self._now and now_s - trouble.since_s >= LASTS_S)
        if is_news and not trouble.is_said:
            trouble.is_said = True
            foreign = None if isinstance(error, RzschedError) else error
            what = f"{self._whole} can't serve {part}" if part else f"{self._whole} waits for the server"
            self._log.warning("%s: %s", what, error, exc_info=foreign)

    def went_well(self, part: str) -> None:
        """Hear that it works; say so where it was said that it did not."""
        trouble = self._now.pop(part, None)
        if trouble is not None and trouble.is_said:
            self._log.info("%s goes on: %s", self._whole, f"{part} is served" if part else "the server is back")
