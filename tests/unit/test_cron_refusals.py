"""Schedules that are refused: at once, with the reason, whatever the input."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rzsched.cron import CronSchedule, EverySchedule, parse_cron
from rzsched.errors import InvalidCron

MALFORMED = [
    "",
    " ",
    "*",
    "* * * *",
    "* * * * * * *",
    "* * * * * * * *",
    "0 0 1 1 * 2030 *",
    "@reboot",
    "@every 5m",
    "@",
    "@daily @daily",
    "every minute",
    "a b c d e",
    "* * * * * ;",
    "-1 * * * *",
    "1- * * * *",
    "-5-10 * * * *",
    "1-2-3 * * * *",
    "1,,2 * * * *",
    "1, * * * *",
    ",1 * * * *",
    "1.5 * * * *",
    "1e1 * * * *",
    "+5 * * * *",
    "0x1 * * * *",
    "** * * * *",
    "*5 * * * *",
    "*-5 * * * *",
    "5-* * * * *",
    "*/ * * * *",
    "/5 * * * *",
    "*/*/5 * * * *",
    "*/-5 * * * *",
    "*/1.5 * * * *",
    "*/five * * * *",
    "? * * * *",
    "0 0 ?,1 * *",
    "h * * * *",
    "H/5 * * * *",
    "R * * * *",
    "mon * * * *",
    "0 0 * mon *",
    "0 0 * * jan",
    "0 0 * * monday",
    "0 0 * january *",
    "0 0 15W * *",
    "0 0 LW * *",
    "0 0 L-3 * *",
    "0 0 * L *",
    "L * * * *",
    "0 0 * * L",
    "0 0 1#1 * *",
    "0 0 * * #1",
    "0 0 * * 1#",
    "0 0 * * 1#0",
    "0 0 * * 1#6",
    "0 0 * * 8#1",
    "0 0 * * 1#1#1",
    "0 0 * * 1#1/2",
    "0 0 * * 1,5#2",
    "0 0 * * *,5#2",
    "0 0 * * L8",
    "0 0 * * xxxL",
    "0 0 * * 5l5",
    "0\x000 * * * *",
    "0 0 * * *\x1b[31m",
    "0 0 * * *\n0 0 * * *",
    "0 0 * * *\u00a0*",
    "٣ * * * *",
    "0 0 * * \u212a",
    "\ud800 * * * *",
]
OUT_OF_RANGE = [
    "60 * * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 * 0 *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "60 * * * * *",
    "0 60 * * * *",
    "0 0 24 * * *",
    "0-60 * * * *",
    "0 0-24 * * *",
    "0 0 0-5 * *",
    "0 0 20-32 * *",
    "0 0 * 0-3 *",
    "0 0 * * 0-8",
    "60/5 * * * *",
    "99999999999999999999 * * * *",
    "0 0 * * 999999#1",
    "0 0 0/2 * *",
]
ZERO_STEPS = [
    "*/0 * * * *",
    "*/00 * * * *",
    "0 */0 * * *",
    "0 0 */0 * *",
    "5/0 * * * *",
    "1-5/0 * * * *",
    "0 0 * * */0",
]
BACKWARDS = ["50-10 * * * *", "0 22-2 * * *", "0 0 25-5 * *", "50-10 * * * * *", "10-5/2 * * * *"]
NEVER_DUE = [
    "0 0 30 2 *",
    "0 0 31 2 *",
    "0 0 30,31 2 *",
    "0 0 31 4 *",
    "0 0 31 2,4,6,9,11 *",
    "0 0 31 4 */2",
    "0 0 30 2 ?",
    "0 0 0 30 2 *",
    "* * 30-31 feb *",
    "*\t*  31 sep *",
]
HUGE = ["*" * 10**6, "1," * 10**6 + "1 * * * *", "0 " * 10**6, "9" * 10**6 + " * * * *", "*/" + "9" * 900 + " * * * *"]


def refused_at_once(expression: str) -> InvalidCron:
    begun = time.perf_counter()
    with pytest.raises(InvalidCron) as caught:
        parse_cron(expression)
    assert time.perf_counter() - begun < 0.5
    assert caught.value.expression == expression and caught.value.why
    assert len(str(caught.value)) <= 500 and str(caught.value).isprintable()
    return caught.value


@pytest.mark.parametrize("expression", MALFORMED, ids=ascii)
def test_malformed_expressions_are_refused(expression: str) -> None:
    refused_at_once(expression)


@pytest.mark.parametrize("expression", OUT_OF_RANGE)
def test_values_out_of_range_are_refused(expression: str) -> None:
    refused_at_once(expression)


@pytest.mark.parametrize("expression", ZERO_STEPS)
def test_a_step_of_zero_is_refused(expression: str) -> None:
    assert "step of 0" in refused_at_once(expression).why


@pytest.mark.parametrize("expression", BACKWARDS)
def test_a_range_that_runs_backwards_is_refused_but_for_months_and_weekdays(expression: str) -> None:
    assert "runs backwards" in refused_at_once(expression).why


@pytest.mark.parametrize("expression", NEVER_DUE)
def test_dates_that_never_come_are_refused(expression: str) -> None:
    assert refused_at_once(expression).why == "no date ever matches it"


@pytest.mark.parametrize("expression", ["0 0 31 2,3 *", "0 0 29 2 *", "0 0 31 2 1", "0 0 L 2 *", "0 0 30 2 1#5"])
def test_dates_that_come_in_some_month_or_year_are_not(expression: str) -> None:
    assert parse_cron(expression).next_after(0) is not None


@pytest.mark.parametrize("expression", HUGE, ids=[text[:4] for text in HUGE])
def test_huge_expressions_are_refused(expression: str) -> None:
    refused_at_once(expression)


def test_every_value_written_out_is_not_too_long() -> None:
    texts = [
        ",".join(map(str, range(low, high))) for low, high in ((0, 60), (0, 60), (0, 24), (1, 32), (1, 13), (0, 8))
    ]
    assert parse_cron(" ".join(texts)).next_after(0) == 1000


@given(st.text(alphabet="*/,-?#@LW0123456789 monJAN", max_size=40) | st.text())
def test_whatever_the_text_it_is_read_or_refused(text: str) -> None:
    try:
        schedule = parse_cron(text)
    except InvalidCron:
        return
    due = schedule.next_after(0)
    assert due is not None and due > 0 and schedule.in_words()


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["* * * * *"]], ids=repr)
def test_an_expression_that_is_no_text_is_a_type_error(expression: Any) -> None:
    with pytest.raises(TypeError, match="cron expression is a str"):
        parse_cron(expression)


@pytest.mark.parametrize(
    "name",
    [
        "Mars/Phobos",
        "",
        "localtime",
        "europe/rome",
        "../UTC",
        "/etc/localtime",
        "UTC\0",
        "+05:30",
        "zones",
        "x" * 10**6,
    ],
)
def test_an_unknown_zone_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone") as caught:
        parse_cron("0 2 * * *", name)
    assert name[:80].encode("unicode_escape").decode()[:20] in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("name", [None, 0, b"UTC"], ids=repr)
def test_a_zone_that_is_no_text_is_a_type_error(name: Any) -> None:
    with pytest.raises(TypeError, match="time zone"):
        parse_cron("0 2 * * *", name)


def test_unknown_policies_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="dst_gap must be 'after' or 'skip', not 'before'"):
        parse_cron("0 2 * * *", dst_gap="before")
    with pytest.raises(ValueError, match="dst_fold must be 'first' or 'both', not 'second'"):
        CronSchedule("0 2 * * *", dst_fold="second")
    with pytest.raises(TypeError, match="dst_fold is a str"):
        parse_cron("0 2 * * *", dst_fold=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [0, -1, 0.0001, float("nan"), float("inf"), -float("inf"), 10**400, 1e300])
def test_senseless_intervals_are_refused(every: float) -> None:
    with pytest.raises(ValueError, match="every must be"):
        EverySchedule(every, 0)


@pytest.mark.parametrize("every", [None, "60", True, [1]], ids=repr)
def test_an_interval_that_is_no_number_is_a_type_error(every: Any) -> None:
    with pytest.raises(TypeError, match="every is a number"):
        EverySchedule(every, 0)


@pytest.mark.parametrize("instant", [None, "0", True, 1.5], ids=repr)
def test_an_instant_that_is_no_int_is_a_type_error(instant: Any) -> None:
    for schedule in (parse_cron("* * * * *"), EverySchedule(60, 0)):
        for ask in (schedule.next_after, schedule.previous_before):
            with pytest.raises(TypeError, match="an instant is an int"):
                ask(instant)
    with pytest.raises(TypeError, match="an instant is an int"):
        EverySchedule(60, instant)
