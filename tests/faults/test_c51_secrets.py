"""C51: neither the server's password nor what jobs carry shows in any output or command line."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.conftest import OwnServer, Process
from tests.fleet import Fleet, until
from tests.servers import Server, free_port

PASSWORD = "p@ss/#w0rd"
ENCODED = quote(PASSWORD, safe="")
SECRET = "S3CRET"
WRONG = "wr@ng/#one"


def assert_nothing_shows(*texts: str) -> None:
    for text in texts:
        for secret in (PASSWORD, ENCODED, ENCODED.lower(), SECRET, WRONG, quote(WRONG, safe=""), "w0rd", "wr@ng"):
            assert secret not in text, f"{secret} shows in: {text}"


def command_lines(pids: list[int]) -> str:
    """Give what `ps` shows of some processes."""
    return "\n".join(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in pids)


def url(port: int, password: str = ENCODED, user: str = "default") -> str:
    return f"redis://{user}:{password}@127.0.0.1:{port}/0"


@pytest.fixture
def server(own_server: OwnServer) -> Server:
    return own_server(password=PASSWORD)


@pytest.fixture
def fleet(server: Server) -> Iterator[Fleet]:
    with Fleet(url(server.port)) as made:
        yield made


def finish(process: Process, code: int) -> str:
    assert process.wait(20) == code, process.output()
    assert_nothing_shows(process.output())
    return process.output()


def test_no_process_shows_a_password_or_a_payload(fleet: Fleet) -> None:
    worker = fleet.worker("-v", "-w", "2", "--unknown-grace", "0", wait=False)
    children = fleet.children(worker, 2)
    scheduler = fleet.scheduler("-v")
    assert_nothing_shows(command_lines([worker.pid, scheduler.pid, *children]))
    args = [{"password": SECRET}]
    ok, fail, die = (
        fleet.client.schedule_job("logs_in", args=[*args, how], delay=0.05) for how in ("ok", "fail", "die")
    )
    unknown = fleet.client.schedule_job("no.such", args=args)
    misfit = fleet.client.schedule_job("logs_in", args=[*args, 1, 2, 3], max_retries=0)
    broken = fleet.client.schedule_job("logs_in", args=[*args, "ok"], delay=0.3)
    key = fleet.place.job(broken)
    fleet.redis.hset(key, "payload", fleet.redis.hget(key, "payload") + b"\xc1")
    for job in (ok, fail, die, unknown, misfit, broken):
        fleet.wait_for_state(job, "SUCCEEDED" if job == ok else "DEAD")
    running = fleet.client.schedule_job("gated", args=[SECRET])
    os.kill(fleet.stand.next(SECRET)["pid"], signal.SIGKILL)
    fleet.stand.next(SECRET).say()
    fleet.wait_for_state(running, "SUCCEEDED")
    for words in (["status", fail], ["status", unknown, "--json"], ["jobs", "default", "--state", "DEAD"], ["queues"],
                  ["jobs", "default", "--state", "SUCCEEDED", "--json"], ["workers", "--json"],
                  ["dead", "list", "default"], ["dead", "list", "default", "--json"],
                  ["dead", "show", "default", misfit], ["wait", ok], ["doctor"],
                  ["doctor", "--audit", "--fix", "--json"]):  # fmt: skip
        finish(fleet.start("-v", *words), 0)
    finish(fleet.start("-v", "wait", die), 1)
    fleet.check()
    assert [fleet.stop(each) for each in (worker, scheduler)] == [0, 0]
    assert_nothing_shows(worker.output(), scheduler.output())
    assert worker.output().count("run failed") >= 4, "it did log"


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_a_wrong_password_is_refused_and_not_shown(fleet: Fleet, server: Server, verbose: list[str]) -> None:
    wrong = url(server.port, quote(WRONG, safe=""))
    for words in (["worker", fleet.target], ["worker", "-w", "2", fleet.target], ["scheduler"], ["queues"],
                  ["enqueue", "t"], ["doctor"], ["doctor", "--fix", "--json"]):  # fmt: skip
        output = finish(fleet.start(*verbose, *words, url=wrong), 4)
        assert "refused the user name or password" in output
        assert verbose or "Traceback" not in output
    fleet.check()


def test_a_server_that_is_away_shows_no_password(fleet: Fleet) -> None:
    away = url(free_port())
    for words in (["worker", "--no-wait", fleet.target], ["worker", "--no-wait", "-w", "2", fleet.target], ["queues"],
                  ["enqueue", "t"], ["doctor"]):  # fmt: skip
        assert "can't reach redis" in finish(fleet.start("-v", *words, url=away), 4)
    waiting = fleet.start("-v", "scheduler", url=away)
    fleet.wait_for_line(waiting, "waits for the server")
    assert fleet.stop(waiting) == 0
    assert_nothing_shows(waiting.output())


def test_a_server_that_goes_away_shows_no_password(fleet: Fleet, server: Server) -> None:
    worker = fleet.worker("-v", "--lease", "1")
    job = fleet.client.schedule_job("gated", args=[SECRET])
    visit = fleet.stand.next(SECRET)
    server.stop()
    fleet.wait_for_line(worker, "the server is away")
    fleet.wait_for_line(worker, "leases can't be renewed")
    server.restart()
    visit.say()
    fleet.wait_for_line(worker, "the server is back")
    assert job
    assert fleet.stop(worker) == 0
    assert_nothing_shows(worker.output())


@pytest.mark.parametrize("raw", ["redis://default:p@ss/#w0rd@127.0.0.1:6379/0", "redis://:p@ss@127.0.0.1:99999/0"])
def test_a_url_that_cannot_be_read_is_not_shown(fleet: Fleet, raw: str) -> None:
    for words in (["worker", fleet.target], ["scheduler"], ["queues"]):
        output = finish(fleet.start("-v", *words, url=raw), 2 if words != ["worker", fleet.target] else 1)
        assert "p@ss" not in output


def test_a_crash_with_its_traceback_shows_no_password(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(textwrap.dedent("""
        import contextlib, os
        from rzsched import App

        @contextlib.asynccontextmanager
        async def lifespan():
            raise RuntimeError("cannot connect to " + os.environ["RZSCHED_URL"])
            yield

        app = App(lifespan=lifespan)
        if os.environ.get("AT_IMPORT"):
            raise RuntimeError("cannot connect to " + os.environ["RZSCHED_URL"])
    """))
    for env in ({}, {"AT_IMPORT": "1"}):
        for verbose in ([], ["-v"]):
            process = fleet.start(*verbose, "worker", "crashing:app", cwd=tmp_path, env=env)
            output = finish(process, 1)
            assert "cannot connect to" in output
            assert ("Traceback" in output) == bool(verbose)
    until(lambda: fleet.client.workers() == [])
