"""The command line against a real server: what it prints where, and how it exits."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from rzsched import calls
from rzsched.calls import Claimed
from rzsched.cli import cli
from rzsched.client import Client
from rzsched.codec import encode_value
from rzsched.job import JobSpec, State
from rzsched.listing import list_jobs
from rzsched.space import Plan
from tests.conftest import OwnServer
from tests.servers import free_port

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]


@pytest.fixture
def client(redis_url: str) -> Any:
    with Client(redis_url) as made:
        yield made


@pytest.fixture
def rz(redis_url: str) -> Run:
    """Run one command in this process."""

    def run(*words: str, code: int = 0, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(cli, words, input=stdin, env={"RZSCHED_URL": redis_url, **(env or {})})
        assert result.exit_code == code, result.output
        if code:
            assert "Traceback" not in result.stderr
        return result

    return run


def shell(*words: str, env: dict[str, str] | None = None, cwd: Path = ROOT, stdin: str = "") -> Any:
    """Run one command as its own process."""
    return subprocess.run(
        [sys.executable, "-m", "rzsched", *words], capture_output=True, text=True, timeout=60, cwd=cwd, input=stdin,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )  # fmt: skip


def claim(client: Client, queue: str = "default", limit: int = 10) -> list[Claimed]:
    """Claim jobs as a worker would."""
    def plan() -> Plan[list[Claimed]]:
        (claimed,) = yield [calls.claim(client.space.place(queue, 0), "w1", 15_000, limit, "")]
        return claimed  # type: ignore[no-any-return]

    return client.run(plan())


def finish(client: Client, runs: Sequence[Claimed], outcome: str, a: str | bytes, b: str = "", c: str = "",
           queue: str = "default") -> None:
    """End runs as a worker would."""
    told = [(outcome, run.id, run.fence, run.entry, a, b, c) for run in runs]

    def plan() -> Plan[None]:
        yield [calls.finish(client.space.place(queue, 0), "w1", 15_000, 0, "", told)]

    client.run(plan())


def make_dead(client: Client, *args: Any, reason: str = "boom", **options: Any) -> str:
    job_id = client.schedule_job("fail", args=args, **options)
    queue = options.get("queue", "default")
    finish(client, claim(client, queue), "DEAD", reason, "", options.get("idempotency_key", ""), queue=queue)
    return job_id


# One job.


def test_a_job_is_enqueued_shown_and_cancelled(rz: Run) -> None:
    job_id = rz("enqueue", "mail", "--args", '["a@b.c"]', "--kwargs", '{"subject": "hi"}', "--delay", "10m",
                "-q", "email", "--priority", "2", "--max-retries", "7").stdout.strip()  # fmt: skip
    told = json.loads(rz("status", job_id, "--json").stdout)
    assert (told["task"], told["queue"], told["priority"], told["max_retries"]) == ("mail", "email", 2, 7)
    assert told["state"] == "PENDING" and "payload" not in told and "args" not in told
    due = datetime.fromisoformat(told["next_run_at"])
    assert timedelta(minutes=9) < due - datetime.now(UTC) <= timedelta(minutes=10)
    told = json.loads(rz("status", job_id, "--json", "--payload").stdout)
    assert (told["args"], told["kwargs"]) == (["a@b.c"], {"subject": "hi"})
    assert re.search(r"^state +PENDING$", rz("status", job_id).stdout, re.M)
    assert rz("cancel", job_id).stdout == "cancelled\n"
    assert "already ended" in rz("cancel", job_id, code=1).stderr


def test_a_job_may_have_its_instant(rz: Run) -> None:
    job_id = rz("enqueue", "t", "--at", "2031-01-01T06:00:00+06:00").stdout.strip()
    assert json.loads(rz("status", job_id, "--json").stdout)["next_run_at"] == "2031-01-01T00:00:00+00:00"
    assert "no offset from UTC" in rz("enqueue", "t", "--at", "2031-01-01T06:00:00", code=2).stderr
    assert "not both" in rz("enqueue", "t", "--at", "2031-01-01T06:00:00Z", "--delay", "5", code=2).stderr


def test_a_key_in_use_gives_the_first_job_and_says_so(rz: Run) -> None:
    first = rz("enqueue", "t", "--idempotency-key", "k", "--json")
    again = rz("enqueue", "t", "--idempotency-key", "k")
    assert json.loads(first.stdout) == {"id": again.stdout.strip(), "created": True}
    assert "no new job" in again.stderr


def test_a_queue_is_paused_limited_and_resumed(rz: Run) -> None:
    def told() -> dict[str, Any]:
        (stats,) = json.loads(rz("queues", "--json").stdout)
        return {name: stats[name] for name in ("queue", "paused", "concurrency", "rate")}

    assert rz("pause", "email").stdout == "paused\n"
    assert told() == {"queue": "email", "paused": True, "concurrency": None, "rate": None}
    assert rz("configure", "email", "--concurrency", "5", "--rate", "100/1m").stdout == "configured\n"
    assert rz("resume", "email").stdout == "resumed\n"
    assert told() == {"queue": "email", "paused": False, "concurrency": 5, "rate": [100, 60]}
    assert re.search(r"^email .* no +5 +100/60s$", rz("queues").stdout, re.M)
    rz("configure", "email", "--concurrency", "none")
    rz("configure", "email", "--rate", "0")
    assert told() == {"queue": "email", "paused": False, "concurrency": None, "rate": None}


def test_senseless_limits_are_wrong_usage(rz: Run) -> None:
    assert "name a limit" in rz("configure", "email", code=2).stderr
    for wrong in ("--concurrency=-1", "--concurrency=few", "--rate=2", "--rate=2/0", "--rate=x/1"):
        rz("configure", "email", wrong, code=2)
    rz("pause", "a:b", code=2)
    assert rz("queues", "--json").stdout == "[]\n"


def test_parked_jobs_are_listed_and_shown(rz: Run, client: Client) -> None:
    first, second = (rz("enqueue", "t", "--concurrency-key", "customer 7").stdout.strip() for _ in range(2))
    assert [run.id for run in claim(client)] == [first]
    assert json.loads(rz("status", second, "--json").stdout)["parked"] is True
    assert [job["id"] for job in json.loads(rz("jobs", "default", "--state", "pending", "--json").stdout)] == [second]
    assert rz("cancel", second).stdout == "cancelled\n"


def test_an_unknown_job_is_3_and_a_malformed_id_is_2(rz: Run) -> None:
    for command in ("status", "cancel", "wait"):
        result = rz(command, "default.0.nothing", code=3)
        assert (result.stdout, result.stderr) == ("", "rzsched: no such job: default.0.nothing\n")
        assert "invalid job id" in rz(command, "nothing", code=2).stderr
    assert rz("dead", "show", "default", "default.0.nothing", code=3).stdout == ""
    assert rz("dead", "replay", "default", "default.0.nothing", code=3).stdout == ""
    assert rz("dead", "show", "other", "default.0.nothing", code=3).stdout == ""


def test_a_waiter_gets_the_result_as_json(rz: Run, client: Client) -> None:
    job_id = client.schedule_job("t")
    result = encode_value({"at": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\xff"})
    finish(client, claim(client), "SUCCEEDED", result, "9999")
    assert json.loads(rz("wait", job_id).stdout) == {"at": "2026-01-01T00:00:00+00:00", "raw": {"$bytes": "/w=="}}


def test_a_waiter_whose_job_ends_badly_exits_1(rz: Run, client: Client) -> None:
    dead = make_dead(client)
    assert rz("wait", dead, code=1).stderr == f"rzsched: job {dead} failed: boom\n"
    cancelled = client.schedule_job("t")
    client.cancel_job(cancelled)
    assert "was cancelled" in rz("wait", cancelled, code=1).stderr
    waiting = client.schedule_job("t")
    result = rz("wait", waiting, "--timeout", "100ms", code=1)
    assert "has not ended in time" in result.stderr and "reach" not in result.stderr


def test_a_result_that_cannot_be_decoded_is_no_wrong_usage(rz: Run, client: Client, raw: redis.Redis) -> None:
    job_id = client.schedule_job("t")
    finish(client, claim(client), "SUCCEEDED", b"\xc1", "9999")
    for command in ("status", "wait"):
        assert "cannot be decoded" in rz(command, job_id, code=1).stderr
    assert json.loads(rz("jobs", "default", "--state", "succeeded", "--json").stdout)[0]["id"] == job_id
    raw.hset(f"rz:{{default.0}}:job:{job_id}", mapping={"result": b"\xc0", "payload": b"\xc1"})
    assert json.loads(rz("status", job_id, "--json", "--payload").stdout)["payload"] == {"$bytes": "wQ=="}


# Many jobs.


def lines_of(*jobs: dict[str, Any]) -> str:
    return "".join(json.dumps(job) + "\n" for job in jobs)


def test_a_file_of_jobs_is_enqueued(rz: Run, tmp_path: Path, client: Client) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text("\ufeff" + lines_of({"task": "a", "args": [1], "delay": 60}, {"task": "b", "queue": "other"},
                                        {"task": "c", "at": "2031-01-01T00:00:00Z", "idempotency_key": "k"}) + "\n")
    assert rz("enqueue", "--file", str(path)).stdout == "3\n"
    assert [(stats.queue, stats.scheduled, stats.ready) for stats in client.queues()] == [
        ("default", 2, 0), ("other", 0, 1)]  # fmt: skip
    again = json.loads(rz("enqueue", "--file", str(path), "--json").stdout)
    assert (again["count"], again["created"], len(again["ids"])) == (3, 2, 3)


def test_options_hold_for_the_lines_that_say_nothing(rz: Run, client: Client) -> None:
    shown = rz("enqueue", "--file", "-", "-q", "mine", "--delay", "1h", "-v",
               stdin=lines_of({"task": "a"}, {"task": "b", "queue": "own", "delay": 0})).stdout.split()
    assert [client.get_job_status(job_id).queue for job_id in shown] == ["mine", "own"]
    assert (client.queue_stats("mine").scheduled, client.queue_stats("own").ready) == (1, 1)
    for words in (["enqueue"], ["enqueue", "t", "--file", "-"], ["enqueue", "--file", "-", "--args", "[]"]):
        assert rz(*words, code=2).stdout == ""


def test_a_bad_line_stops_a_file_before_anything_is_written(rz: Run, tmp_path: Path, raw: redis.Redis) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(lines_of(*[{"task": "t"}] * 5000) + '{"task": "t", "delay": NaN}\n')
    result = rz("enqueue", "--file", str(path), code=2)
    assert "line 5001: delay must be a finite number" in result.stderr and result.stdout == ""
    assert raw.dbsize() == 0
    assert "does not exist" in rz("enqueue", "--file", str(tmp_path / "none"), code=2).stderr


def test_a_bad_line_of_stdin_says_what_was_written_before(rz: Run, client: Client) -> None:
    jobs = lines_of(*[{"task": "t"}] * 2500)
    result = rz("enqueue", "--file", "-", stdin=jobs + "{\n", code=2)
    assert "stdin line 2501: not JSON" in result.stderr and "2000 jobs were written before" in result.stderr
    assert client.queue_stats("default").ready == 2000


def test_stdin_is_written_while_it_is_still_open(redis_url: str, client: Client) -> None:
    process = subprocess.Popen([sys.executable, "-m", "rzsched", "--url", redis_url, "enqueue", "--file", "-", "-v"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(lines_of(*[{"task": "t"}] * 2000).encode())
    process.stdin.flush()
    for _ in range(2000):
        assert process.stdout.readline().startswith(b"default.0.")
    assert client.queue_stats("default").ready == 2000
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_progress_bar_is_for_terminals_only(redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(lines_of(*[{"task": "t"}] * 10))
    quiet = shell("--url", redis_url, "enqueue", "--file", str(path))
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "10\n", "")
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "rzsched", "--url", redis_url, "enqueue", "--file", str(path)],
                          stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += (more := os.read(ours, 4096))
            except OSError:  # a terminal whose last writer has gone
                break
            if not more:
                break
        assert process.stdout is not None and process.stdout.read() == b"10\n"
    os.close(ours)
    assert b"enqueueing" in shown and b"100%" in shown


# Listing.


def test_jobs_are_listed_by_state(rz: Run, client: Client) -> None:
    def listed(state: str, *more: str) -> list[str]:
        return [job["id"] for job in json.loads(rz("jobs", "default", "--state", state, "--json", *more).stdout)]

    done, retried, dead = (client.schedule_job("t") for _ in range(3))
    runs = claim(client)
    finish(client, runs[:1], "SUCCEEDED", encode_value("r"), "3600000")
    finish(client, runs[1:2], "RETRY", "broke", "60000")
    finish(client, runs[2:], "DEAD", "gave up")
    running = client.schedule_job("t")
    claim(client)
    ready = {client.schedule_job("t"), client.schedule_job("t", priority=0)}
    later, latest = client.schedule_job("t", delay=60), client.schedule_job("t", delay=90)
    gone = client.schedule_job("t", delay=1)
    client.cancel_job(gone)
    pending = listed("PENDING")
    assert (set(pending[:2]), pending[2:]) == (ready, [later, latest])
    assert listed("pending", "--count", "3") == pending[:3]
    assert listed("RUNNING") == [running]
    assert listed("FAILED") == [retried]
    assert listed("DEAD") == [dead]
    assert listed("SUCCEEDED") == [done]
    assert listed("CANCELLED") == [gone]
    told = json.loads(rz("jobs", "default", "--state", "RUNNING", "--json").stdout)[0]
    assert (told["worker"], told["attempts"], told["state"]) == ("w1", 1, "RUNNING")
    table = rz("jobs", "default", "--state", "FAILED").stdout
    assert re.search(rf"^{re.escape(retried)} +t +1 +5 .* broke$", table, re.M)
    assert listed("DEAD", "--count", "1") == [dead]
    assert rz("jobs", "nothing", "--state", "DEAD", "--json").stdout == "[]\n"


def test_a_long_listing_is_read_in_pages_and_cut(client: Client, raw: redis.Redis) -> None:
    client.schedule_many([*_specs(700, delay=100), *_specs(700)])
    assert len(client.run(list_jobs(client.space, "default", State.PENDING, 10_000)).jobs) == 1400
    assert len(client.run(list_jobs(client.space, "default", State.PENDING, 650)).jobs) == 650
    for _ in range(7):
        claim(client, limit=100)
    assert len(client.run(list_jobs(client.space, "default", State.RUNNING, 10_000)).jobs) == 700
    for key in raw.scan_iter("rz:{default.0}:job:*", count=1000):
        raw.hset(key, "state", "SUCCEEDED")
    assert len(client.run(list_jobs(client.space, "default", State.SUCCEEDED, 10_000)).jobs) == 1400


def _specs(count: int, **options: Any) -> list[JobSpec]:
    return [JobSpec("t", **options) for _ in range(count)]


def test_foreign_entries_do_not_break_a_listing(rz: Run, client: Client, raw: redis.Redis) -> None:
    client.schedule_job("t")
    raw.xadd("rz:{default.0}:ready:5", {b"\xff\x00": b"\xff\x00"})
    raw.xadd("rz:{default.0}:ready:5", {b"id": b"default.0.nothing"})
    raw.zadd("rz:{default.0}:scheduled", {b"default.0.gone": 5})
    assert len(json.loads(rz("jobs", "default", "--state", "PENDING", "--json").stdout)) == 1
    claim(client)
    assert len(json.loads(rz("jobs", "default", "--state", "RUNNING", "--json").stdout)) == 1
    due, foreign, _ = json.loads(rz("dead", "list", "default", "--json").stdout)
    assert due["error"] == "scheduled id without a job record"
    shown = json.loads(rz("dead", "show", "default", foreign["id"], "--payload", "--json").stdout)
    assert shown["raw"] == {"\\xff\x00": {"$bytes": "/wA="}}
    assert "raw" not in json.loads(rz("dead", "show", "default", foreign["id"], "--json").stdout)
    refused = rz("dead", "replay", "default", foreign["id"], code=1)
    assert "no job behind this entry" in refused.stderr and refused.stdout == "0 replayed\n"
    assert rz("dead", "purge", "default", foreign["id"]).stdout == "1 purged\n"


def test_queues_and_workers_are_listed(rz: Run, client: Client) -> None:
    assert rz("queues", "--json").stdout == "[]\n"
    assert rz("workers", "--json").stdout == "[]\n"
    client.schedule_job("t", queue="email")
    told = json.loads(rz("queues", "--json").stdout)
    assert (told[0]["queue"], told[0]["ready"]) == ("email", 1)
    heads, row = rz("queues").stdout.splitlines()
    assert heads.split()[:3] == ["QUEUE", "SCHEDULED", "READY"] and row.split()[:3] == ["email", "0", "1"]
    assert rz("workers").stdout.split()[:2] == ["WORKER", "HOST"]


# Dead jobs.


def test_dead_jobs_are_listed_by_page_shown_replayed_and_purged(rz: Run, client: Client) -> None:
    first, second, third = (make_dead(client, {"password": "S3CRET"}, reason=f"no {n}") for n in range(3))
    page = rz("dead", "list", "default", "--count", "2")
    assert [line.split()[0] for line in page.stdout.splitlines()] == ["JOB", first, second]
    entry = re.search(r"--after (\S+),", page.stderr)
    assert entry is not None
    rest = json.loads(rz("dead", "list", "default", "--after", entry[1], "--json").stdout)
    assert [job["id"] for job in rest] == [third]
    assert len(json.loads(rz("dead", "list", "default", "--all", "--json").stdout)) == 3
    plain = rz("dead", "show", "default", first).stdout
    assert re.search(r"^error +no 0$", plain, re.M) and "S3CRET" not in plain
    told = json.loads(rz("dead", "show", "default", first, "--json", "--payload").stdout)
    assert (told["args"], told["max_retries"]) == ([{"password": "S3CRET"}], 3)
    assert rz("dead", "replay", "default", first).stdout == "1 replayed\n"
    assert json.loads(rz("status", first, "--json").stdout)["state"] == "PENDING"
    assert rz("dead", "show", "default", first, code=3).stdout == ""
    assert json.loads(rz("dead", "purge", "default", "--all", "--json").stdout) == {"purged": 2, "refused": {}}
    assert json.loads(rz("dead", "list", "default", "--json").stdout) == []


def test_replay_and_purge_want_to_know_of_which(rz: Run, client: Client) -> None:
    job_id = make_dead(client)
    for verb in ("replay", "purge"):
        assert "name the jobs, or say --all" in rz("dead", verb, "default", code=2).stderr
        assert rz("dead", verb, "default", job_id, "--all", code=2).stdout == ""
    assert client.queue_stats("default").dead == 1


def test_a_job_whose_key_is_taken_is_refused_and_stays_dead(rz: Run, client: Client) -> None:
    dead = make_dead(client, idempotency_key="k")
    holder = client.schedule_job("t", idempotency_key="k")
    for chosen in (dead, "--all"):
        result = rz("dead", "replay", "default", chosen, code=1)
        assert result.stderr == f"rzsched: {dead} is not replayed: its idempotency key is held by job {holder}\n"
        assert result.stdout == "0 replayed\n"
    assert client.queue_stats("default").dead == 1


# The frame.


def test_help_and_version_need_no_server(rz: Run) -> None:
    assert re.fullmatch(r"rzsched \d+\.\d+\.\d+\n", rz("--version").stdout)
    for words in (["-h"], ["--help"], ["dead", "-h"], ["worker", "--help"], ["dead", "list", "-h"]):
        assert rz(*words).stdout.startswith("Usage: rzsched")


@pytest.mark.parametrize(
    "words",
    [["nothing"], ["status"], ["status", "--nothing", "x"], ["jobs", "q"], ["jobs", "q", "--state", "LOST"],
     ["enqueue", "t", "--delay", "soon"], ["enqueue", "t", "--args", "[1"], ["enqueue", "t", "--priority", "high"],
     ["worker"], ["worker", "nothing"], ["worker", "no_such_module:app"], ["worker", "x:y", "-q", "a:b"],
     ["worker", "x:y", "-q", "a", "-q", "a:2"], ["worker", "x:y", "--lease", "0.5"], ["worker", "x:y", "-c", "0"],
     ["worker", "x:y", "--shutdown-timeout", "nan"], ["worker", "x:y", "-w", "0"], ["scheduler", "-q", "a b"],
     ["--url", "http://localhost", "queues"], ["--namespace", "", "queues"], ["--namespace", "a:b", "queues"],
     ["jobs", "q", "--state", "DEAD", "--count", "0"], ["dead", "list", "q", "--count", "-1"]],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_exit_2(rz: Run, words: list[str]) -> None:
    result = rz(*words, code=2)
    assert result.stdout == ""
    assert re.fullmatch(r"rzsched: [^\n]+\n", result.stderr), result.stderr


def test_options_come_from_the_environment(rz: Run, client: Client) -> None:
    env = {"RZSCHED_NAMESPACE": "mine", "RZSCHED_ENQUEUE_QUEUE": "q", "RZSCHED_STATUS_JSON": "1"}
    job_id = rz("enqueue", "t", env=env).stdout.strip()
    assert json.loads(rz("status", job_id, env=env).stdout)["queue"] == "q"
    assert client.queues() == []


def test_the_server_away_is_exit_4() -> None:
    result = shell("queues", env={"RZSCHED_URL": f"redis://:hunter2@127.0.0.1:{free_port()}/0"})
    assert (result.returncode, result.stdout) == (4, "")
    assert re.fullmatch(r"rzsched: can't reach redis at 127[^\n]+\n", result.stderr)


def test_no_password_is_ever_shown(own_server: OwnServer) -> None:
    password = "p@ss/#w0rd"
    server = own_server(password=password)
    right = f"redis://:p%40ss%2F%23w0rd@127.0.0.1:{server.port}/0"
    assert shell("queues", env={"RZSCHED_URL": right}).returncode == 0
    wrong = right.replace("w0rd", "w0rd-wrong")
    unreadable = f"redis://:{password}@127.0.0.1:{server.port}/0"
    for url, codes in [(wrong, {4}), (unreadable, {2, 4})]:
        for more in ([], ["-v"]):
            result = shell(*more, "queues", env={"RZSCHED_URL": url})
            assert result.returncode in codes
            assert "w0rd" not in result.stdout + result.stderr
    stray = shell("queues", right)
    assert stray.returncode == 2 and "w0rd" not in stray.stderr


def test_a_traceback_is_shown_only_when_asked(redis_url: str) -> None:
    words = ["--url", redis_url, "status", "default.0.nothing"]
    assert shell(*words).stderr.count("\n") == 1
    for result in (shell("-v", *words), shell(*words, env={"RZSCHED_DEBUG": "1"})):
        assert "Traceback" in result.stderr and result.returncode == 3


def test_a_reader_that_goes_away_is_no_error(redis_url: str, client: Client) -> None:
    client.schedule_many(_specs(5000, delay=100))
    process = subprocess.Popen(
        [sys.executable, "-m", "rzsched", "--url", redis_url, "jobs", "default", "--state", "PENDING", "--count=5000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        # Without a buffer Python takes the part that was written for the whole.
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 1


def test_ctrl_c_is_quiet(redis_url: str, client: Client) -> None:
    job_id = client.schedule_job("t", delay=1000)
    process = subprocess.Popen([sys.executable, "-m", "rzsched", "--url", redis_url, "wait", job_id],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)  # fmt: skip
    with redis.Redis.from_url(redis_url) as looker:
        deadline = time.monotonic() + 30
        while not looker.pubsub_channels("*ended*") and time.monotonic() < deadline:
            select.select([], [], [], 0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (b"", b"", 130)


def test_names_that_look_like_options_work_after_two_dashes(rz: Run) -> None:
    job_id = rz("enqueue", "-q", "--help", "--", "--version").stdout.strip()
    assert job_id.startswith("--help.0.")
    assert json.loads(rz("status", "--json", "--", job_id).stdout)["task"] == "--version"
    assert json.loads(rz("jobs", "--state", "PENDING", "--json", "--", "--help").stdout)[0]["id"] == job_id
    assert "put -- before" in rz("status", job_id, code=2).stderr
    assert rz("cancel", "--", job_id).stdout == "cancelled\n"
    assert json.loads(rz("dead", "list", "--json", "--", "--help").stdout) == []


# Worker and scheduler.

TASKS = """
from rzsched import App
app = App("redis://127.0.0.1:1/0")

@app.task
def double(number):
    return number * 2

@app.task(max_retries=0)
def fail(secret):
    raise RuntimeError("no luck")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(textwrap.dedent(TASKS))
    return tmp_path


def test_a_worker_runs_the_jobs_of_an_app_in_the_current_folder(rz: Run, redis_url: str, shop: Path) -> None:
    job_id = rz("enqueue", "double", "--args", "[21]", "--delay", "200ms").stdout.strip()
    result = shell("worker", "tasks:app", "--burst", "-v", env={"RZSCHED_URL": redis_url}, cwd=shop)
    assert result.returncode == 0, result.stderr
    assert rz("wait", job_id, "--timeout", "5").stdout == "42\n"
    assert result.stdout == ""
    for line in result.stderr.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ \S+ ", line), line


def test_a_worker_at_debug_shows_neither_password_nor_payload(own_server: OwnServer, shop: Path) -> None:
    server = own_server(password="p@ss/#w0rd")
    env = {"RZSCHED_URL": f"redis://:p%40ss%2F%23w0rd@127.0.0.1:{server.port}/0"}
    secret = ["--args", '[{"password": "S3CRET"}]']
    ended = [shell("enqueue", task, *secret, env=env).stdout.strip() for task in ("fail", "fail", "unknown")]
    shown = [shell("-v", "worker", "tasks:app", "--burst", "-v", "--unknown-grace", "0", env=env, cwd=shop)]
    shown += [shell("-v", *words, env=env) for words in (
        ["dead", "list", "default"], ["dead", "show", "default", ended[0]], ["status", ended[1]],
        ["jobs", "default", "--state", "DEAD"], ["wait", ended[2]], ["queues"], ["workers"])]  # fmt: skip
    assert ended[0] in shown[1].stdout
    for result in shown:
        for hidden in ("S3CRET", "w0rd"):
            assert hidden not in result.stdout + result.stderr, result.args


def test_a_worker_that_may_not_wait_exits_4(shop: Path) -> None:
    result = shell("worker", "tasks:app", "--no-wait", cwd=shop)
    assert result.returncode == 4, result.stderr
    assert "Traceback" not in result.stderr


def test_a_module_that_fails_is_told_in_one_line(shop: Path) -> None:
    (shop / "tasks.py").write_text("import no_such_dependency")
    result = shell("worker", "tasks:app", cwd=shop)
    assert result.returncode == 1
    assert result.stderr == ("rzsched: importing tasks failed: ModuleNotFoundError: No module named "
                             "'no_such_dependency' (-v shows where)\n")  # fmt: skip
    assert "Traceback" in shell("worker", "tasks:app", "-v", cwd=shop).stderr


def test_enqueue_waits_for_what_it_is_told_to(own_server: OwnServer, tmp_path: Path) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    lines = tmp_path / "jobs"
    lines.write_text('{"task": "t"}\n' * 3)

    def enqueue(*words: str) -> Result:
        return CliRunner().invoke(cli, ["enqueue", *words], env={"RZSCHED_URL": server.url})

    for words in (["t", "--durability", "fsync"], ["--file", str(lines), "--durability", "fsync"]):
        assert enqueue(*words).exit_code == 0
    with redis.Redis.from_url(server.url) as link:
        assert int(link.hget("rz:{default.0}:stats", "waits") or 0) == 3, "one a call, one for the new queue"
        link.config_set("appendonly", "no")
        assert enqueue("t", "--durability", "disk").exit_code == 2
        refused = enqueue("t", "--durability", "fsync")
        assert (refused.exit_code, link.xlen("rz:{default.0}:ready:5")) == (1, 4)
        assert "appendonly yes" in refused.stderr
