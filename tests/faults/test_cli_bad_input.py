"""Malformed times and odd names by the command line: each works, or is refused as in Python, with nothing written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from rzsched.cli import cli
from rzsched.client import Client
from rzsched.errors import one_line
from rzsched.names import split_job_id

Run = Callable[..., Result]


@pytest.fixture
def rz(redis_url: str) -> Run:
    def run(*words: str, stdin: str = "") -> Result:
        result = CliRunner().invoke(cli, ["--url", redis_url, *words], input=stdin)
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    return run


def refusal(client: Client, call: Callable[[Client], Any]) -> str:
    """Say how Python refuses a call, on one line."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call(client)
    return one_line(str(caught.value))


@pytest.fixture
def client(redis_url: str) -> Any:
    with Client(redis_url) as made:
        yield made


def assert_refused(result: Result, message: str, raw: redis.Redis) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert raw.dbsize() == 0


# Times.


@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf, 10**18, 1e300])
def test_a_senseless_delay_is_refused_as_in_python(rz: Run, client: Client, raw: redis.Redis, delay: float) -> None:
    message = refusal(client, lambda client: client.schedule_job("t", delay=delay))
    assert_refused(rz("enqueue", "t", "--delay", str(delay)), message, raw)
    bad = json.dumps({"task": "t", "delay": delay})
    for stdin in (bad, json.dumps({"task": "t"}) + "\n" + bad):
        assert_refused(rz("enqueue", "--file", "-", stdin=stdin), message, raw)


@pytest.mark.parametrize("delay", ["5", True, [], {}])
def test_a_delay_of_the_wrong_type_is_refused_as_in_python(
    rz: Run, client: Client, raw: redis.Redis, delay: Any
) -> None:
    message = refusal(client, lambda client: client.schedule_job("t", delay=delay))
    assert_refused(rz("enqueue", "--file", "-", stdin=json.dumps({"task": "t", "delay": delay})), message, raw)


@pytest.mark.parametrize("run_at", [math.nan, math.inf, -math.inf, 1.8e12, 10**18, True, []])
def test_a_senseless_instant_is_refused_as_in_python(rz: Run, client: Client, raw: redis.Redis, run_at: Any) -> None:
    message = refusal(client, lambda client: client.schedule_job("t", run_at=run_at))
    assert_refused(rz("enqueue", "--file", "-", stdin=json.dumps({"task": "t", "at": run_at})), message, raw)


@pytest.mark.parametrize("text", ["", "0", "1.8e12", "nan", "10000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999",
                                  "0001-01-01T00:00:00", "2026-02-30T00:00:00Z"])  # fmt: skip
def test_what_is_no_instant_with_an_offset_is_refused(rz: Run, raw: redis.Redis, text: str) -> None:
    assert_refused(rz("enqueue", "t", "--at", text), "", raw)
    assert_refused(rz("enqueue", "--file", "-", stdin=json.dumps({"task": "t", "at": text})), "line 1", raw)


@pytest.mark.parametrize("words", [["--delay", "-1"], ["--delay", "-1e15"], ["--delay", "0"], ["--delay=-1d"],
                                   ["--at", "0001-01-01T00:00:00Z"], ["--at", "1970-01-01T00:00:00Z"]])  # fmt: skip
def test_the_past_is_now(rz: Run, client: Client, words: list[str]) -> None:
    assert rz("enqueue", "t", *words).exit_code == 0
    assert (client.queue_stats("default").ready, client.queue_stats("default").scheduled) == (1, 0)


@pytest.mark.parametrize(
    ("words", "due"),
    [(["--delay", "1e-9"], None), (["--delay", "2147483648ms"], None),
     (["--at", "9999-12-31T23:59:59.999999Z"], datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC))],
)  # fmt: skip
def test_the_far_future_is_kept(rz: Run, client: Client, words: list[str], due: datetime | None) -> None:
    job_id = rz("enqueue", "t", *words).stdout.strip()
    assert client.queue_stats("default").scheduled == 1
    assert due is None or client.get_job_status(job_id).next_run_at == due


# Names.

ODD = ["a:b", "a:b:c:d", "{x}", "x}y{", "*", "?", "[a-z]", " ", "\n", "\0", "é", "../x", "%41", '"', "", "x" * 1000]
GOOD = ["--help", "123", "-", "_", "--", "-q"]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_queue_is_refused_everywhere_as_in_python(rz: Run, client: Client, raw: redis.Redis, name: str) -> None:
    message = refusal(client, lambda client: client.schedule_job("t", queue=name))
    assert message == refusal(client, lambda client: client.list_dead(name))
    for words in (
        ["enqueue", "-q", name, "t"],
        ["jobs", "--state", "PENDING", "--", name],
        ["dead", "list", "--", name],
        ["dead", "show", "--", name, "default.0.x"],
        ["dead", "replay", "--all", "--", name],
        ["dead", "purge", "--all", "--", name],
        ["scheduler", "-q", name],
        ["worker", "-q", name, "no:app"],
    ):
        assert_refused(rz(*words), message, raw)
    assert_refused(rz("enqueue", "--file", "-", stdin=json.dumps({"task": "t", "queue": name})), message, raw)


@pytest.mark.parametrize("name", [name for name in ODD if name != "../x"])
def test_an_odd_task_is_refused_as_in_python(rz: Run, client: Client, raw: redis.Redis, name: str) -> None:
    message = refusal(client, lambda client: client.schedule_job(name))
    assert_refused(rz("enqueue", "--", name), message, raw)
    assert_refused(rz("enqueue", "--file", "-", stdin=json.dumps({"task": name})), message, raw)


@pytest.mark.parametrize("name", [*ODD, "--help", "123", "q.0", "q.00.x", "q.0.x:y", "q.0.{x}", "q.0.*"])
def test_an_odd_job_id_is_refused_everywhere_as_in_python(rz: Run, client: Client, raw: redis.Redis, name: str) -> None:
    message = refusal(client, lambda client: client.get_job_status(name))
    for command in ("status", "cancel", "wait"):
        assert_refused(rz(command, "--", name), message, raw)
    if name != "123":  # may be an entry of the dead stream
        for command in ("show", "replay", "purge"):
            assert_refused(rz("dead", command, "--", "q", name), message, raw)


@pytest.mark.parametrize("key", [key for key in ODD if key not in {"", "x" * 1000}] + GOOD)
def test_any_text_may_be_an_idempotency_key(rz: Run, key: str) -> None:
    first, again = (rz("enqueue", "t", "--idempotency-key", key, "--json") for _ in range(2))
    assert json.loads(first.stdout)["created"] and not json.loads(again.stdout)["created"]
    told = json.loads(rz("status", json.loads(first.stdout)["id"], "--json").stdout)
    assert told["idempotency_key"] == key


@pytest.mark.parametrize("key", ["", "x" * 1000, "\ud800"])
def test_a_key_that_cannot_be_is_refused_as_in_python(rz: Run, client: Client, raw: redis.Redis, key: str) -> None:
    message = refusal(client, lambda client: client.schedule_job("t", idempotency_key=key))
    assert_refused(rz("enqueue", "t", "--idempotency-key", key), message, raw)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_odd_name_works_end_to_end(rz: Run, name: str) -> None:
    job_id = rz("enqueue", "-q", name, "--delay", "1h", "--", name).stdout.strip()
    assert split_job_id(job_id)[0] == name
    assert json.loads(rz("status", "--json", "--", job_id).stdout)["task"] == name
    assert len(json.loads(rz("jobs", "--state", "PENDING", "--json", "--", name).stdout)) == 1
    assert rz("cancel", "--", job_id).stdout == "cancelled\n"
    assert len(json.loads(rz("jobs", "--state", "CANCELLED", "--json", "--", name).stdout)) == 1
    for verb in ("replay", "purge"):
        assert rz("dead", verb, "--all", "--", name).exit_code == 0


def test_purging_a_star_touches_no_other_queue(rz: Run, client: Client) -> None:
    client.schedule_job("t", queue="other")
    assert rz("dead", "purge", "--all", "--", "*").exit_code == 2
    assert client.queue_stats("other").ready == 1
