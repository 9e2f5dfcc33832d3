"""Jobs and their options: what is kept, merged, refused and read back."""

import copy
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rzsched.errors import InvalidName
from rzsched.job import (
    EPOCH,
    LAST_MS,
    NO_OPTIONS,
    JobId,
    JobOptions,
    JobSpec,
    State,
    check_options,
    duration_ms,
    instant,
    prepare,
    read_status,
    run_at_text,
    run_policy,
)
from rzsched.retry import Backoff

LIMIT = 1 << 20


class ATask:
    def __init__(self, name: str = "mail.send", options: JobOptions = NO_OPTIONS) -> None:
        self.name = name
        self.job_options = options


def more_of(spec: JobSpec) -> dict[str, str]:
    flat = prepare(spec, spec.task, spec.args, spec.kwargs, LIMIT).more
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_defaults_are_not_stored() -> None:
    job = prepare(JobSpec("t"), "t", (), None, LIMIT)
    assert (job.run_at, job.priority, job.key, job.task, job.queue) == ("", "5", "", "t", "default")
    assert job.more == ()
    assert more_of(JobSpec("t", priority=5, idempotency_ttl=86_400)) == {}


def test_what_is_said_is_stored_as_plain_text() -> None:
    spec = JobSpec("t", priority=0, max_retries=0, backoff=Backoff(1, 2, 3, 0.5), timeout=0.0001,
                   expires=timedelta(days=1), retention=0, idempotency_key="k", idempotency_ttl=1.5)  # fmt: skip
    assert more_of(spec) == {
        "priority": "0", "max_retries": "0", "backoff": "1/2/3/0.5", "timeout_ms": "1", "expires_ms": "86400000",
        "retention_ms": "0", "idempotency_key": "k", "idempotency_ttl_ms": "1500",
    }  # fmt: skip


def test_of_a_task_only_what_scripts_read_is_stored() -> None:
    options = JobOptions(queue="q", priority=1, expires=2, idempotency_ttl=3, max_retries=9, timeout=1, retention=1,
                         backoff=Backoff())  # fmt: skip
    spec = JobSpec(ATask(options=options))
    assert more_of(spec) == {"priority": "1", "expires_ms": "2000", "idempotency_ttl_ms": "3000"}
    assert prepare(spec, spec.task, (), None, LIMIT).queue == "q"
    assert more_of(JobSpec(ATask(options=options), priority=5, expires=1)) == {
        "expires_ms": "1000", "idempotency_ttl_ms": "3000",
    }  # fmt: skip


@pytest.mark.parametrize("task", [None, 1, b"t", print, object(), JobSpec("t")])
def test_what_is_no_task_is_a_type_error(task: object) -> None:
    with pytest.raises(TypeError, match="task"):
        prepare(JobSpec("t"), task, (), None, LIMIT)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "é", "a:b", "x" * 201])
def test_a_tasks_name_is_checked_however_it_comes(name: str) -> None:
    for task in (name, ATask(name)):
        with pytest.raises(InvalidName):
            prepare(JobSpec("t"), task, (), None, LIMIT)


@given(st.datetimes(min_value=datetime(1970, 1, 1, 0, 0, 1), timezones=st.timezones()))
def test_an_instant_is_stored_to_the_millisecond_whatever_its_zone(when: datetime) -> None:
    try:
        written = run_at_text(when, None)
    except ValueError:
        assert when - EPOCH > timedelta(milliseconds=LAST_MS)
        return
    read = instant(written or None)
    if when > EPOCH + timedelta(milliseconds=1):
        assert read is not None
        assert timedelta(0) <= when - read < timedelta(milliseconds=1)


@given(st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.integers(), st.timedeltas()))
def test_a_delay_is_now_or_exact_or_refused(delay: float | timedelta) -> None:
    try:
        written = run_at_text(None, delay)
    except ValueError:
        return
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if seconds <= 0:
        assert written == ""
    else:
        assert 0 <= int(written[1:]) - seconds * 1000 < 1.001


@given(st.one_of(st.floats(), st.integers()))
def test_epoch_seconds_are_now_or_exact_or_refused(when: float) -> None:
    try:
        written = run_at_text(when, None)
    except ValueError:
        return
    assert written == "" if when * 1000 < 1 else abs(int(written) - when * 1000) <= 1


def test_both_times_are_one_too_many() -> None:
    for run_at, delay in ((0, 0), (EPOCH, 1)):
        with pytest.raises(ValueError, match="not both"):
            run_at_text(run_at, delay)


@pytest.mark.parametrize(("value", "least", "written"), [(0, 0, "0"), (1e-9, 1, "1"), (1.0001, 1, "1001")])
def test_durations_are_rounded_up(value: float, least: int, written: str) -> None:
    assert duration_ms(value, "x", least) == written


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**12, 10**400])
def test_senseless_durations_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="retention"):
        duration_ms(value, "retention", 0)


def test_the_nearest_word_wins_and_a_time_replaces_a_time() -> None:
    task = JobOptions(queue="task", priority=1, delay=5)
    call = JobOptions(queue="call", run_at=7)
    merged = call.over(task)
    assert merged == JobOptions(queue="call", priority=1, run_at=7)
    assert NO_OPTIONS.over(task) == task
    assert task.over(NO_OPTIONS) == task
    nothing = JobOptions(priority=0, retention=0)
    assert nothing.over(JobOptions(priority=3, retention=9)) == nothing, "0 is said, not left out"


def test_a_tasks_options_are_checked_when_it_is_registered() -> None:
    assert check_options(JobOptions(queue="q", priority=3)).queue == "q"
    for bad in (JobOptions(run_at=1), JobOptions(delay=1), JobOptions(idempotency_key="k"), JobOptions(priority=10),
                JobOptions(queue="a:b"), JobOptions(timeout=0), JobOptions(expires=-1)):  # fmt: skip
        with pytest.raises(ValueError):
            check_options(bad)


def test_what_holds_for_a_run() -> None:
    task = JobOptions(max_retries=7, timeout=timedelta(seconds=9), retention=1)
    policy = run_policy(task, None, None, None, None)
    assert (policy.max_retries, policy.timeout_s, policy.retention_ms, policy.backoff) == (7, 9.0, "1000", Backoff())
    policy = run_policy(task, b"0", b"1/2/3/0", b"1500", b"0")
    assert (policy.max_retries, policy.timeout_s, policy.retention_ms) == (0, 1.5, "0")
    assert policy.backoff == Backoff(1, 2, 3, 0)
    assert run_policy(NO_OPTIONS, None, None, None, None).max_retries == 3
    assert run_policy(JobOptions(max_retries=0), None, None, None, None).max_retries == 0


@pytest.mark.parametrize("created", [True, False])
def test_a_job_id_is_a_str_that_remembers(created: bool) -> None:
    job_id = JobId("q.0.x", created)
    assert job_id == "q.0.x"
    for twin in (pickle.loads(pickle.dumps(job_id)), copy.copy(job_id), copy.deepcopy(job_id)):
        assert (type(twin), twin, twin.created) == (JobId, job_id, created)


def test_a_status_is_read_from_the_least_there_can_be() -> None:
    status = read_status("q.0.foreign", [b"", b"", b"-2", b"1000", b"", [b"task", b"t", b"entry", b"5/2000-0"]])
    assert (status.state, status.queue, status.max_retries, status.created_at) == (State.PENDING, "q", 3, None)
    assert status.next_run_at == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    by_hand = read_status("q.0.foreign", [b"", b"", b"-2", b"1000", b"9", [b"task", b"\xff"]])
    assert (by_hand.next_run_at, by_hand.max_retries, by_hand.task) == (None, 9, "\ufffd")
