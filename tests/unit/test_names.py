"""What may be a name, and what a job id says."""

import enum
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rzsched.errors import InvalidName
from rzsched.names import (
    check_idempotency_key,
    check_namespace,
    check_queue,
    check_schedule_id,
    check_task,
    check_worker_id,
    job_id_ms,
    new_job_id,
    new_job_ids,
    split_job_id,
)

Check = Callable[[str], str]
PLAIN: list[Check] = [check_queue, check_namespace, check_worker_id]
DOTTED: list[Check] = [check_task, check_schedule_id]
ODD = [
    "a:b",
    "a:b:c:d",
    "{x}",
    "x}y{",
    "*",
    "?",
    "[a-z]",
    " ",
    "a b",
    "a\n",
    "\na",
    "a\r",
    "\x00",
    "é",
    "٣",
    "ａ",
    "../x",
    "%41",
    '"',
    "",
    "x" * 1000,
    "\ud800",
    "a/b",
    "a#b",
]


class Queue(str, enum.Enum):  # noqa: UP042  (its str() is not its value, unlike a StrEnum's)
    EMAIL = "email"


@pytest.mark.parametrize("check", PLAIN + DOTTED)
@pytest.mark.parametrize("name", ["a", "email", "A-b_9", "123", "--help", "-", "_", "x" * 64])
def test_plain_names_pass_unchanged(check: Check, name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("check", PLAIN + DOTTED)
@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_refused_in_the_same_way_everywhere(check: Check, name: str) -> None:
    with pytest.raises(InvalidName, match="ASCII letters, digits, '_'") as caught:
        check(name)
    assert caught.value.value == name
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_only_tasks_and_schedules_may_hold_dots_and_be_long() -> None:
    for name in ("billing.charge", ".", "x" * 65, "x" * 200):
        for check in DOTTED:
            assert check(name) == name
        for check in PLAIN:
            with pytest.raises(InvalidName):
                check(name)
    with pytest.raises(InvalidName):
        check_task("x" * 201)


@pytest.mark.parametrize("check", [*PLAIN, *DOTTED, check_idempotency_key, split_job_id])
@pytest.mark.parametrize("value", [None, 7, b"email", ["email"]])
def test_what_is_no_str_is_a_type_error_that_says_what_to_pass(
    check: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(TypeError, match=f"pass a str, not {type(value).__name__}"):
        check(value)


def test_a_str_subclass_comes_back_as_the_plain_text_it_holds() -> None:
    assert type(check_queue(Queue.EMAIL)) is str
    assert check_queue(Queue.EMAIL) == check_queue("email") == "email"
    assert type(check_queue("email")) is str
    assert check_idempotency_key(Queue.EMAIL) == "email"


@given(st.text(min_size=1, max_size=128))
def test_any_text_of_up_to_512_bytes_may_be_a_key(key: str) -> None:
    assert check_idempotency_key(key) == key


@pytest.mark.parametrize(
    "key", ["a:b", "{x}", "*", "\n", "\x00", " ", "é" * 256, "x" * 512, "\U0001f600" * 128]
)
def test_odd_keys_pass(key: str) -> None:
    assert check_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", "x" * 513, "é" * 257, "\U0001f600" * 129, "a\ud800", "x" * 10**6])
def test_keys_that_are_empty_too_long_or_no_text_are_refused(key: str) -> None:
    with pytest.raises(InvalidName, match=r"^invalid concurrency_key '.*: use ") as caught:
        check_idempotency_key(key, kind="concurrency_key")
    assert len(str(caught.value)) < 200


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.integers(0, 99_999), st.integers(0, 62**7 - 1))
def test_a_new_job_id_says_where_the_job_lives_and_when_it_was_made(queue: str, partition: int, ms: int) -> None:
    job_id = new_job_id(queue, partition, ms)
    assert split_job_id(job_id) == (queue, partition)
    assert re.fullmatch(r"[A-Za-z0-9]{15}", job_id.split(".")[2])
    assert job_id_ms(job_id) == ms


@pytest.mark.parametrize("count", [1, 2, 500, 3844, 3845, 9000])
def test_job_ids_made_together_all_differ(count: int) -> None:
    assert len(set(new_job_ids("q", 0, count, 1_700_000_000_000))) == count


def test_job_ids_made_in_one_millisecond_do_not_repeat() -> None:
    assert len({new_job_id("q", 0, 1_700_000_000_000) for _ in range(20_000)}) == 20_000


def test_job_ids_sort_by_age() -> None:
    ids = [new_job_id("q", 0, ms) for ms in range(1_700_000_000_000, 1_700_000_020_000, 7)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("job_id", ["q.0.abc", "q.0.nightly-report-1700000000000", "q.0." + "-" * 15])
def test_an_id_of_another_make_tells_no_time(job_id: str) -> None:
    assert job_id_ms(job_id) is None


@pytest.mark.parametrize("rest", ["a", "nightly-report-1700000000000", "A_b-9", "x" * 200])
def test_the_last_part_of_a_job_id_may_name_an_occurrence(rest: str) -> None:
    assert split_job_id(f"default.99999.{rest}") == ("default", 99_999)


@pytest.mark.parametrize(
    "job_id",
    [
        *ODD,
        "q",
        "q.0",
        "q.0.",
        ".0.a",
        "q..a",
        "q.00.a",
        "q.01.a",
        "q.-1.a",
        "q.+1.a",
        "q.100000.a",
        "q.x.a",
        "q.٣.a",
        "q.0.a.b",
        "q.0.a\n",
        "q.0.a b",
        "q.0.{a}",
        "q:0:a",
        "q.0." + "x" * 201,
        "x" * 65 + ".0.a",
        " q.0.a",
    ],
)
def test_a_malformed_job_id_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidName, match=r"invalid job id .*: use <queue>") as caught:
        split_job_id(job_id)
    assert caught.value.kind == "job id"


@given(st.text())
def test_no_text_makes_a_check_fail_in_another_way(text: str) -> None:
    for check in (*PLAIN, *DOTTED, check_idempotency_key, split_job_id):
        try:
            check(text)
        except InvalidName as error:
            assert str(error).isprintable()
