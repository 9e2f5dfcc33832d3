"""Errors keep their facts, on one line, across processes."""

import copy
import inspect
import pickle

import pytest

from rzsched import errors
from rzsched.errors import RzschedError

EVERY = [
    errors.RzschedError("something\nodd"),
    errors.JobNotFound("q.0.abc"),
    errors.CronNotFound("nightly"),
    errors.JobFailed("q.0.abc", "ValueError: boom\n  at line 3"),
    errors.JobFailed(job_id="q.0.abc", error=""),
    errors.JobCancelled("q.0.abc", "expired"),
    errors.JobCancelled("q.0.abc", reason=""),
    errors.JobTimeout(2.5),
    errors.PayloadError("kwargs.order", "is a set of odd\nthings"),
    errors.PayloadTooLarge(2_000_000, limit=1_048_576),
    errors.InvalidCron("* * *\n", "has three fields"),
    errors.InvalidName("queue", "a\nb" * 500, "use letters"),
    errors.UnknownTask("no.such\x1b[31m"),
    errors.ConnectionFailed("refused\r\n\ud800"),
    errors.NotDurable(["q.0.abc", "q.0.def"], "0 of 1 replicas\nhad it"),
    errors.NotDurable([], "no"),
    errors.ServerUnsuitable("eviction\u2028policy"),
]


def facts(error: RzschedError) -> dict[str, object]:
    return {"type": type(error), "args": error.args, **vars(error)}


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: RzschedError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(error, protocol))
        assert facts(back) == facts(error) and str(back) == str(error)
    assert facts(copy.copy(error)) == facts(copy.deepcopy(error)) == facts(error)


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_reads_as_one_short_printable_line(error: RzschedError) -> None:
    assert str(error) and str(error).isprintable() and len(str(error)) <= 500


def test_every_error_is_covered_here_and_derives_from_the_root() -> None:
    defined = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__}
    assert defined == {type(error) for error in EVERY}
    assert all(issubclass(kind, RzschedError) for kind in defined)


def test_errors_about_arguments_are_value_errors() -> None:
    for kind in (errors.PayloadError, errors.PayloadTooLarge, errors.InvalidCron, errors.InvalidName):
        assert issubclass(kind, ValueError)
    assert not issubclass(errors.PayloadTooLarge, errors.PayloadError)


def test_a_giant_error_text_is_kept_as_a_fact_and_cut_in_the_line() -> None:
    error = errors.JobFailed("q.0.a", "x" * 50_000_000)
    assert len(error.error) == 50_000_000 and len(str(error)) == 500


def test_messages_say_what_happened() -> None:
    assert str(errors.JobNotFound("q.0.a")) == "no such job: q.0.a"
    assert str(errors.JobFailed("q.0.a", "E: boom\nmore")) == "job q.0.a failed: E: boom more"
    assert str(errors.JobCancelled("q.0.a", "expired")) == "job q.0.a was cancelled: expired"
    assert str(errors.JobTimeout(30)) == "the attempt ran past its timeout of 30 s"
    assert str(errors.PayloadError("args[0]", "is odd")) == "args[0]: is odd"
    assert str(errors.InvalidName("queue", "a b", "use x")) == "invalid queue 'a b': use x"
    assert str(errors.UnknownTask("no.such")) == "unknown task 'no.such'"
    assert str(errors.ConnectionFailed("refused")) == "refused"
    assert "...: use x" in str(errors.InvalidName("queue", "a" * 1000, "use x"))
