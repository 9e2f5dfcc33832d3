"""Extreme and malformed times run once now, wait for their instant, or are refused with nothing written."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rzsched import calls, keys
from rzsched.client import Client
from rzsched.job import LAST_MS, State

PLACE = keys.partition("rz", "default", 0)


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with Client(redis_url) as found:
        yield found


def ready(raw: Any) -> int:
    return int(raw.xlen(PLACE.ready[5]))


@pytest.mark.parametrize(
    "said",
    [
        {"delay": -1}, {"delay": -1e15}, {"delay": -(10**17)}, {"delay": 0}, {"delay": None}, {"delay": -0.0},
        {"delay": timedelta.min}, {"run_at": 0}, {"run_at": -1}, {"run_at": -1e300}, {"run_at": 0.5},
        {"run_at": datetime.min.replace(tzinfo=UTC)},
        {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, {},
    ],
)  # fmt: skip
def test_past_and_negative_times_run_once_now(client: Client, raw: Any, said: dict[str, Any]) -> None:
    job_id = client.schedule_job("t", **said)
    assert ready(raw) == 1
    assert raw.zcard(PLACE.scheduled) == 0
    assert client.get_job_status(job_id).state is State.PENDING


@pytest.mark.parametrize(
    "said",
    [
        {"delay": float("nan")}, {"delay": float("inf")}, {"delay": float("-inf")}, {"delay": "5"}, {"delay": True},
        {"delay": b"5"}, {"delay": [5]}, {"delay": 10**18}, {"delay": 10**400}, {"delay": 1e300},
        {"delay": timedelta.max},
        {"run_at": float("nan")}, {"run_at": float("inf")}, {"run_at": "2030-01-01"}, {"run_at": True},
        {"run_at": 1.8e12},
        {"run_at": 10**18}, {"run_at": 10**5000}, {"run_at": datetime.max}, {"run_at": datetime(2030, 1, 1)},
        {"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))}, {"run_at": timedelta(1)},
        {"run_at": 1, "delay": 0}, {"run_at": datetime.now(UTC).date()},
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_and_nothing_written(client: Client, raw: Any, said: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        client.schedule_job("t", **said)
    assert raw.dbsize() == 0


@pytest.mark.parametrize("seconds", [2_147_483.647, 2_147_483.648, 2_147_484, 4_294_967.296, 86_400 * 365 * 1000])
def test_delays_beyond_32_bits_wait_their_whole_time(client: Client, raw: Any, seconds: float) -> None:
    job_id = client.schedule_job("t", delay=seconds)
    now_s, _ = raw.time()
    assert ready(raw) == 0
    assert abs(raw.zscore(PLACE.scheduled, job_id) / 1000 - now_s - seconds) < 5
    assert client.run(_promote()).count == 0


def test_the_smallest_delay_is_due_within_a_millisecond_or_so(client: Client, raw: Any) -> None:
    job_id = client.schedule_job("t", delay=1e-9)
    seconds, micros = raw.time()
    due = raw.zscore(PLACE.scheduled, job_id)
    assert due is None or due <= seconds * 1000 + micros / 1000 + 1


def test_the_last_instant_there_is_is_stored_exactly_and_does_not_run(client: Client, raw: Any) -> None:
    job_id = client.schedule_job("t", run_at=datetime.max.replace(tzinfo=UTC))
    assert raw.zscore(PLACE.scheduled, job_id) == LAST_MS
    assert client.run(_promote()).count == 0
    due = client.get_job_status(job_id).next_run_at
    assert due == datetime.max.replace(tzinfo=UTC, microsecond=999_000)


def _promote() -> Any:
    (promotion,) = yield [calls.promote(PLACE, "me", 5, 100)]
    return promotion
