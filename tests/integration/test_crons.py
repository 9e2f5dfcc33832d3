"""Schedules from end to end: declared by code, made by clients, fired by processes, seen by the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from rzsched import App, AsyncClient, Client, Context, CronNotFound, InvalidCron
from tests.conftest import ROOT
from tests.fleet import Fleet, until

FAR = "0 0 1 1 *"


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url, "tests.crons_app:app") as made:
        yield made
        made.check()


def crons(*said: dict[str, Any], app: str = "app", **env: str) -> dict[str, str]:
    return {"RZSCHED_TEST_CRONS": json.dumps(said), "RZSCHED_TEST_APP": app, **env}


def cli(fleet: Fleet, *words: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "rzsched", "--url", fleet.url, *words], cwd=ROOT, capture_output=True,
                          text=True, timeout=30, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


# ---- registering


def test_twenty_at_once_leave_one_schedule_with_one_instant(redis_url: str) -> None:
    queues = ["a", "b", "c"]

    def register(n: int) -> str:
        with Client(redis_url) as client:
            return client.schedule_cron("t", id="nightly", cron="0 2 * * *", tz="Asia/Dhaka", queue=queues[n % 3])

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(register, range(60))) == {"nightly"}
    with Client(redis_url) as client:
        (found,) = client.list_crons()
    assert found.next_run_at is not None
    assert found.next_run_at.astimezone(UTC).hour == 20


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, ValueError),
        ({"cron": "* * * * *", "every": 5}, ValueError),
        ({"cron": "0 0 30 2 *"}, InvalidCron),
        ({"cron": "61 * * * *"}, InvalidCron),
        ({"cron": 5}, TypeError),
        ({"every": 0}, ValueError),
        ({"every": -1}, ValueError),
        ({"every": True}, TypeError),
        ({"every": 5, "tz": "Mars/Base"}, ValueError),
        ({"cron": "* * * * *", "tz": "Mars/Base"}, ValueError),
        ({"cron": "* * * * *", "overlap": "often"}, ValueError),
        ({"cron": "* * * * *", "misfire": None}, TypeError),
        ({"cron": "* * * * *", "misfire_limit": 0}, ValueError),
        ({"cron": "* * * * *", "jitter": -1}, ValueError),
        ({"cron": "* * * * *", "jitter": float("nan")}, ValueError),
        ({"cron": "* * * * *", "dst_gap": "before"}, ValueError),
        ({"cron": "* * * * *", "start": 100, "end": 100}, ValueError),
        ({"cron": "* * * * *", "start": datetime(2026, 1, 1)}, ValueError),
        ({"cron": "* * * * *", "id": "a:b"}, ValueError),
        ({"cron": "* * * * *", "priority": 10}, ValueError),
        ({"cron": "* * * * *", "args": "abc"}, TypeError),
    ],
)
def test_bad_input_is_refused_at_once_and_nothing_is_written(redis_url: str, raw: Any, said: dict[str, Any],
                                                             error: type[Exception]) -> None:
    began = time.monotonic()
    with Client(redis_url) as client, pytest.raises(error):
        client.schedule_cron("t", **said)
    with pytest.raises(error):
        App(redis_url).cron(**said)(_nothing)
    assert time.monotonic() - began < 0.5
    assert raw.dbsize() == 0


def _nothing(*_: object) -> None:
    return None


def test_the_decorator_makes_a_task_or_takes_one(redis_url: str) -> None:
    app = App(redis_url)

    @app.cron("0 2 * * *", tz="Asia/Dhaka", id="nightly-report", overlap="skip", misfire="once", jitter=30, queue="r")
    async def report(ctx: Context) -> None: ...

    @app.cron(every=60, args=(3,))
    @app.task(name="billing.charge", queue="q")
    def charge(customer: int) -> int:
        return customer

    assert charge(2) == 2
    assert set(app.schedules) == {"nightly-report", "billing.charge"}
    assert app.schedules["nightly-report"].job.queue == "r"
    assert app.schedules["billing.charge"].job.queue == "q"
    with pytest.raises(ValueError, match="two schedules"):
        app.cron(every=5, args=(3,))(charge)
    with pytest.raises(TypeError, match="missing a required argument"):
        app.cron(every=5, id="other")(charge)


async def test_the_async_client_does_the_same(redis_url: str) -> None:
    async with AsyncClient(redis_url) as client:
        assert await client.schedule_cron("t", cron=FAR) == "t"
        assert (await client.get_cron("t")).next_run_at is not None
        await client.pause_cron("t")
        assert (await client.get_cron("t")).paused
        await client.resume_cron("t")
        assert (await client.trigger_cron("t")).startswith("default.0.t-")
        assert [each.id for each in await client.list_crons()] == ["t"]
        await client.remove_cron("t")
        with pytest.raises(CronNotFound):
            await client.get_cron("t")


# ---- running


def test_a_declared_schedule_runs_and_tells_its_business_date(fleet: Fleet) -> None:
    worker = fleet.worker(env=crons({"cron": "* * * * * *", "id": "each-second"}))
    until(lambda: len(fleet.ledger()) >= 3)
    runs = fleet.ledger()
    assert all(run["scheduled_for"] == int(run["scheduled_for"]) for run in runs)
    assert all(0 <= run["time"] - run["scheduled_for"] < 1 for run in runs), runs
    line = fleet.wait_for_line(worker, "schedule run")
    assert re.search(r"schedule=each-second business_date=\S+\+00:00 worker=\S+ attempt=1 outcome=succeeded", line)
    found = fleet.client.get_cron("each-second")
    assert (found.owner, found.missed, found.skipped) == ("app", 0, 0)
    assert any(run.outcome.startswith("succeeded") for run in found.history)


def test_a_schedule_made_while_the_scheduler_sleeps_wakes_it(fleet: Fleet) -> None:
    fleet.worker()
    fleet.client.schedule_cron("tick", every=1)
    until(lambda: len(fleet.ledger()) >= 2, limit_s=4)


def test_what_an_app_declares_no_longer_is_removed_and_others_stay(fleet: Fleet) -> None:
    fleet.client.schedule_cron("tick", id="by-client", cron=FAR)
    other = fleet.worker(env=crons({"cron": FAR, "id": "c"}, app="other"))
    first = fleet.worker(env=crons({"cron": FAR, "id": "a"}, {"cron": FAR, "id": "b"}))
    assert {each.id: each.owner for each in fleet.client.list_crons()} == {
        "a": "app", "b": "app", "by-client": None, "c": "other"}  # fmt: skip
    fleet.stop(first)
    second = fleet.worker(env=crons({"cron": FAR, "id": "a"}))
    assert [each.id for each in fleet.client.list_crons()] == ["a", "by-client", "c"]
    for process in (second, other):
        fleet.stop(process)
    fleet.scheduler("tests.crons_app:app")  # it declares none
    until(lambda: [each.id for each in fleet.client.list_crons()] == ["by-client", "c"])


def test_overlap_waits_for_the_end_of_a_real_run(fleet: Fleet) -> None:
    fleet.worker(env=crons({"every": 1, "task": "long", "id": "long", "args": [1.5], "overlap": "wait"}))
    until(lambda: len(fleet.ledger()) >= 3)
    events = sorted(fleet.ledger() + fleet.ledger("began"), key=lambda each: each["time"])
    assert [each["event"] for each in events[:4]] == ["began", "run", "began", "run"]


def test_cancel_stops_the_running_one(fleet: Fleet) -> None:
    fleet.worker(env=crons({"every": 2, "task": "long", "id": "long", "args": [60], "overlap": "cancel"}))
    until(lambda: len(fleet.ledger("began")) >= 3, limit_s=12)
    assert fleet.ledger() == []


def test_hundreds_of_schedules_are_fired_and_listed(fleet: Fleet) -> None:
    for n in range(300):
        fleet.client.schedule_cron("tick", id=f"s{n}", every=60, start=time.time() + 1.5 + n / 300)
    fleet.scheduler()
    until(lambda: sum(each.fired for each in fleet.client.list_crons()) == 300, limit_s=10)


# ---- the command line


def test_the_command_line_does_it_all(fleet: Fleet) -> None:
    assert cli(fleet, "cron", "add", "tick", "--cron", "0 2 * * *", "--tz", "Asia/Dhaka", "--id", "n.1", "--args",
               "[1]", "--overlap", "wait", "--jitter", "30s").strip() == "n.1"
    (row,) = json.loads(cli(fleet, "cron", "list", "--json"))
    assert (row["id"], row["cron"], row["tz"], row["jitter"]) == ("n.1", "0 2 * * *", "Asia/Dhaka", 30.0)
    assert "at 02:00" in row["words"].lower() or "02:00" in row["words"]
    assert "n.1" in cli(fleet, "cron", "list")
    cli(fleet, "cron", "pause", "n.1")
    assert json.loads(cli(fleet, "cron", "show", "n.1", "--json"))["paused"] is True
    cli(fleet, "cron", "resume", "n.1")
    job = cli(fleet, "cron", "trigger", "n.1").strip()
    shown = json.loads(cli(fleet, "cron", "show", "n.1", "--json"))
    assert len(shown["coming"]) == 10
    assert shown["history"][0]["outcome"] == "triggered"
    assert json.loads(cli(fleet, "status", job, "--json"))["schedule_id"] == "n.1"
    assert "coming" in cli(fleet, "cron", "show", "n.1").lower()
    told = ("--start", "2026-01-01T00:00+06:00", "--end", "2026-01-03T00:00+06:00")
    filled = json.loads(cli(fleet, "cron", "backfill", "n.1", *told, "--json"))
    assert [json.loads(cli(fleet, "cron", "backfill", "n.1", *told, "--json")), len(filled)] == [[], 2]
    assert "future" in cli(fleet, "cron", "backfill", "n.1", *told[:3], "2199-01-01T00:00Z", code=2)
    cli(fleet, "cron", "remove", "n.1")
    assert "no such schedule" in cli(fleet, "cron", "show", "n.1", code=3)
    assert "invalid cron" in cli(fleet, "cron", "add", "t", "--cron", "0 0 30 2 *", code=2)


def test_cron_next_prints_instants_with_their_offset(fleet: Fleet) -> None:
    lines = cli(fleet, "cron", "next", "30 1 * * *", "--tz", "Europe/Rome", "--after", "2026-10-23T12:00Z", "-n", "3")
    assert lines.split() == ["2026-10-24T01:30:00+02:00", "2026-10-25T01:30:00+02:00", "2026-10-26T01:30:00+01:00"]
    assert cli(fleet, "cron", "next", "nonsense", code=2)


def test_rearming_by_a_running_scheduler(fleet: Fleet) -> None:
    fleet.client.schedule_cron("tick", id="a", every=60)
    fleet.scheduler()
    fleet.redis.delete(fleet.place.crons)
    until(lambda: fleet.redis.zscore(fleet.place.crons, "a") is not None, limit_s=3)
