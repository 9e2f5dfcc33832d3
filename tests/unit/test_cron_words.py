"""Schedules in English words."""

import pytest

from rzsched.cron import EverySchedule, parse_cron


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 * * * *", "every hour"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0 9 * * 1-5", "at 09:00 on Monday to Friday"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 */2 * 1", "at 00:00 on every 2nd day of the month if it is also on Monday"),
        ("1 2 L 1,7 *", "at 02:01 on the last day of the month in January and July"),
        ("0 9 * * mon#5", "at 09:00 on the fifth Monday of the month"),
        ("0 9 * * 5L", "at 09:00 on the last Friday of the month"),
        ("*/15 1-2 * * *", "every 15 minutes of hours 1 and 2"),
        ("*/30 * * * * *", "every 30 seconds"),
        ("15 10 */4 * * *", "at second 15 of minute 10 of every 4th hour"),
    ],
)
def test_in_words(expression: str, words: str) -> None:
    assert parse_cron(expression).in_words() == words


def test_intervals_in_words() -> None:
    words = [EverySchedule(every, 0).in_words() for every in (1, 0.5, 90, 60, 7200, 86_400)]
    assert words == [
        "every second",
        "every 0.5 seconds",
        "every 90 seconds",
        "every minute",
        "every 2 hours",
        "every day",
    ]
