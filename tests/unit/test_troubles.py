"""Troubles are said once, when they last, and once more when they are over."""

from __future__ import annotations

import logging

import pytest

from rzsched.errors import ConnectionFailed
from rzsched.troubles import LASTS_S, Troubles

AWAY = ConnectionFailed("away")


class Said:
    """Troubles under a clock that the test moves, and what they said."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "rzsched.test")
        self._caplog = caplog
        self.now_s = 0.0
        self.troubles = Troubles(logging.getLogger("rzsched.test"), "scheduler", lambda: self.now_s)

    def failed(self, part: str, times: int = 1, every_s: float = 0.0) -> None:
        for _ in range(times):
            self.troubles.failed(part, AWAY)
            self.now_s += every_s

    @property
    def lines(self) -> list[str]:
        found = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return found


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


def test_a_server_that_is_away_is_said_at_once_and_only_once(said: Said) -> None:
    said.failed("", times=5, every_s=10)
    assert said.lines == ["scheduler waits for the server: away"]
    said.troubles.went_well("")
    said.troubles.went_well("")
    assert said.lines == ["scheduler goes on: the server is back"]
    said.failed("")
    assert said.lines == ["scheduler waits for the server: away"]


def test_a_part_is_said_once_when_its_trouble_lasts_though_the_whole_is_well(said: Said) -> None:
    for _ in range(20):
        said.failed("q.0")
        said.troubles.went_well("")
        said.now_s += LASTS_S / 4
    assert said.lines == ["scheduler can't serve q.0: away"]
    said.troubles.went_well("q.0")
    assert said.lines == ["scheduler goes on: q.0 is served"]


def test_a_short_trouble_of_a_part_is_not_said(said: Said) -> None:
    said.failed("q.0", times=3, every_s=LASTS_S / 4)
    said.troubles.went_well("q.0")
    assert said.lines == []


def test_parts_are_silent_while_the_whole_is_away(said: Said) -> None:
    said.failed("")
    said.failed("q.0", times=5, every_s=LASTS_S)
    assert said.lines == ["scheduler waits for the server: away"]


def test_what_is_no_error_of_this_package_comes_with_its_traceback(
    said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    said.troubles.failed("", ValueError("a foreign value"))
    assert [record.exc_info is not None for record in caplog.records] == [True]
