"""The waits between attempts, and the end of them."""

import math
import pickle
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rzsched.retry import MAX_DELAY_S, Backoff, Dead, Retry, RetryPolicy, max_attempts


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    top = draw(st.floats(0, MAX_DELAY_S))
    return Backoff(draw(st.floats(0, top)), draw(st.floats(1, 1e308)), top, draw(st.floats(0, 1)))


def test_the_default_waits_grow_threefold_up_to_an_hour() -> None:
    steady = Backoff(jitter=0)
    assert [steady.delay(n) for n in range(1, 8)] == [10, 30, 90, 270, 810, 2430, 3600]
    assert Backoff() == Backoff(base=10, factor=3, max=3600, jitter=0.2)


def test_jitter_stays_within_its_share_and_is_applied_after_the_cap() -> None:
    delays = [Backoff().delay(50, random.Random(seed)) for seed in range(2000)]
    assert 2880 <= min(delays) < 2900 and 4300 < max(delays) <= 4320


def test_the_same_generator_gives_the_same_delay() -> None:
    assert Backoff().delay(3, random.Random(7)) == Backoff().delay(3, random.Random(7))


@given(backoffs(), st.integers(1, 10**400))
def test_any_attempt_has_a_finite_wait_within_the_bounds(backoff: Backoff, attempt: int) -> None:
    wait_s = backoff.delay(attempt)
    assert 0 <= wait_s <= backoff.max * (1 + backoff.jitter)


@pytest.mark.parametrize("attempt", [10**6, 10**9, 2**53 + 1, 10**400])
def test_huge_attempts_reach_the_cap_or_stay_where_they_cannot_grow(attempt: int) -> None:
    assert Backoff(jitter=0).delay(attempt) == 3600
    assert Backoff(base=5, factor=1, jitter=0).delay(attempt) == 5
    assert Backoff(base=0, jitter=0).delay(attempt) == 0


@pytest.mark.parametrize("attempt", [0, -1, 1.5, 1.0, True, "1", None, math.nan])
def test_what_is_no_attempt_is_a_value_error(attempt: Any) -> None:
    with pytest.raises(ValueError, match="attempt must be"):
        Backoff().delay(attempt)


FIELDS = ("base", "factor", "max", "jitter")
NO_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, 10**400, "5", None, True, [], 1j]


@pytest.mark.parametrize(
    "fields",
    [
        {"base": -1},
        {"base": -1e-9},
        {"factor": 0.999},
        {"factor": 0},
        {"factor": -3},
        {"max": -1},
        {"max": 0},
        {"max": 5},
        {"max": 10**18},
        {"base": 3601},
        {"jitter": -0.1},
        {"jitter": 1.1},
        *({name: odd} for name in FIELDS for odd in NO_NUMBERS),
    ],
)
def test_senseless_values_are_refused_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"backoff {next(iter(fields))}|backoff base") as caught:
        Backoff(**fields)
    assert len(str(caught.value)) < 120


def test_no_wait_at_all_is_allowed() -> None:
    assert Backoff(base=0, max=0).delay(9) == 0


def test_it_is_stored_as_short_plain_text() -> None:
    assert Backoff().to_text() == "10/3/3600/0.2"
    assert Backoff(0.5, 1.5, 60, 0).to_text() == "0.5/1.5/60/0"


@given(backoffs())
def test_what_is_stored_reads_back_equal(backoff: Backoff) -> None:
    assert Backoff.from_text(backoff.to_text()) == backoff
    assert pickle.loads(pickle.dumps(backoff)) == backoff


@pytest.mark.parametrize(
    "text", ["", "10", "10/3/3600", "10/3/3600/0.2/1", "a/b/c/d", "nan/3/3600/0", "10/3/inf/0"]
)
def test_malformed_stored_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Backoff.from_text(text)


def test_three_retries_make_four_attempts() -> None:
    policy = RetryPolicy(3, Backoff(jitter=0))
    assert [policy.next_delay(n) for n in range(1, 6)] == [10, 30, 90, None, None]
    assert RetryPolicy(0, Backoff()).next_delay(1) is None
    assert (max_attempts(3), max_attempts(0), RetryPolicy()) == (4, 1, RetryPolicy(3, Backoff()))


@pytest.mark.parametrize("count", [-1, 1.0, True, "3", None])
def test_a_senseless_number_of_retries_is_a_value_error(count: Any) -> None:
    with pytest.raises(ValueError, match="max_retries must be"):
        max_attempts(count)
    with pytest.raises(ValueError, match="max_retries must be"):
        RetryPolicy(count, Backoff())


@pytest.mark.parametrize(
    ("after", "seconds"), [(None, None), (0, 0), (5, 5), (0.5, 0.5), (timedelta(minutes=2), 120)]
)
def test_a_handler_may_choose_its_own_delay(after: Any, seconds: float | None) -> None:
    raised = Retry(after=after, reason="busy")
    assert (raised.after_s, raised.reason) == (seconds, "busy")
    back = pickle.loads(pickle.dumps(raised))
    assert (back.after_s, back.reason, str(back)) == (seconds, "busy", str(raised))


@pytest.mark.parametrize(
    "after", [-1, math.nan, math.inf, -math.inf, True, "5", 10**18, 10**400, timedelta(-1), timedelta.max]
)
def test_a_senseless_delay_of_a_handler_is_a_value_error(after: Any) -> None:
    with pytest.raises(ValueError, match="after must be"):
        Retry(after=after)


def test_dead_says_why() -> None:
    back = pickle.loads(pickle.dumps(Dead("card stolen")))
    assert (back.reason, str(back)) == ("card stolen", "card stolen")
    assert (Dead().reason, str(Dead()), str(Retry()), str(Retry(5, "busy"))) == (
        "",
        "",
        "retry",
        "retry after 5 s: busy",
    )
