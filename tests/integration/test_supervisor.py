"""Several worker processes under one parent: who restarts what, and what happens when either dies."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rzsched import JobFailed
from tests.fleet import Fleet, is_alive, until


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with Fleet(redis_url) as made:
        yield made
        made.check()


def test_two_processes_share_the_jobs(fleet: Fleet) -> None:
    supervisor = fleet.worker("-w", "2", "-c", "1", wait=False)
    pids = fleet.children(supervisor, 2)
    jobs = [fleet.client.schedule_job("gated", args=[f"job {n}"]) for n in range(2)]
    visits = [fleet.stand.next(f"job {n}") for n in range(2)]
    assert {visit["pid"] for visit in visits} == set(pids)
    delayed = fleet.client.schedule_job("echo", args=["later"], delay=0.05)
    for visit in visits:
        visit.say("done")
    assert [fleet.client.wait(job, 10) for job in jobs] == ["done", "done"]
    assert fleet.client.wait(delayed, 10) == "later"
    assert {told.pid for told in fleet.client.workers()} == set(pids)
    assert fleet.stop(supervisor) == 0
    assert fleet.client.workers() == []


def test_jobs_of_a_killed_child_run_again_at_once(fleet: Fleet) -> None:
    supervisor = fleet.worker("-w", "2", "-c", "2", wait=False, env={"RZSCHED_TEST_HOOKS": "1"})
    fleet.children(supervisor, 2)
    jobs = [fleet.client.schedule_job("gated", args=[f"job {n}"]) for n in range(2)]
    visit = fleet.stand.next("job 0")
    other = fleet.stand.next("job 1")
    victims = [each for each in (visit, other) if each["pid"] == visit["pid"]]
    os.kill(visit["pid"], signal.SIGKILL)
    began = time.monotonic()
    again = fleet.stand.next("job 0", limit_s=5)
    assert time.monotonic() - began < 1, "long before the lease of 15 s"
    assert (again["attempt"], again["fence"] > visit["fence"]) == (2, True)
    again.say("again")
    assert fleet.client.wait(jobs[0], 10) == "again"
    assert fleet.client.get_job_status(jobs[0]).last_error == "worker lost"
    assert fleet.stand.next("hook recovered")["job"] in jobs
    (other if len(victims) == 1 else fleet.stand.next("job 1")).say("other")
    assert fleet.client.wait(jobs[1], 10) == "other"
    fleet.wait_for_line(supervisor, "worker started", 3)
    until(lambda: len(fleet.client.workers()) == 2)
    assert fleet.client.queue_stats("default").recovered == len(victims)
    assert fleet.stop(supervisor) == 0


def test_a_job_that_kills_its_workers_ends_dead(fleet: Fleet) -> None:
    supervisor = fleet.worker("-w", "1", "-r", wait=False)
    fleet.children(supervisor, 1)
    killer = fleet.client.schedule_job("kills_its_worker")
    with pytest.raises(JobFailed, match="worker lost"):
        fleet.client.wait(killer, 20)
    status = fleet.client.get_job_status(killer)
    assert (status.attempts, status.max_retries) == (3, 2)
    assert [each["attempt"] for each in fleet.ledger(job=killer)] == [1, 2, 3]
    (grave,) = fleet.client.list_dead("default")
    assert (grave.id, grave.error, grave.attempts) == (killer, "worker lost", 3)
    assert fleet.client.wait(fleet.client.schedule_job("echo", args=["alive"]), 20) == "alive"
    assert fleet.stop(supervisor) == 0


def test_children_of_a_killed_supervisor_stop_by_themselves(fleet: Fleet) -> None:
    supervisor = fleet.worker("-w", "2", "-c", "1", wait=False)
    pids = fleet.children(supervisor, 2)
    job = fleet.client.schedule_job("gated", args=["running"])
    visit = fleet.stand.next("running")
    supervisor.kill()
    supervisor.wait()
    until(lambda: supervisor.output().count("worker stopping") == 2)
    idle = next(pid for pid in pids if pid != visit["pid"])
    until(lambda: not is_alive(idle))
    assert is_alive(visit["pid"]), "what runs may end"
    visit.say("ended well")
    until(lambda: not is_alive(visit["pid"]))
    assert fleet.client.wait(job, 5) == "ended well"
    assert fleet.client.workers() == []


def test_sigterm_is_passed_on_and_what_runs_may_end(fleet: Fleet) -> None:
    supervisor = fleet.worker("-w", "2", "-c", "1", wait=False)
    pids = fleet.children(supervisor, 2)
    jobs = [fleet.client.schedule_job("gated", args=["job"]) for _ in range(4)]
    visits = [fleet.stand.next("job") for _ in range(2)]
    supervisor.terminate()
    fleet.wait_for_line(supervisor, "worker stopping", 2)
    assert fleet.pending() == 2
    for visit in visits:
        visit.say("done")
    assert supervisor.wait(10) == 0
    assert not any(map(is_alive, pids))
    assert sorted(fleet.state(job) for job in jobs) == ["PENDING"] * 2 + ["SUCCEEDED"] * 2
    assert sum(fleet.client.get_job_status(job).attempts for job in jobs) == 2


def test_a_second_signal_is_passed_on_too(fleet: Fleet) -> None:
    supervisor = fleet.worker("-w", "2", "-c", "1", wait=False)
    fleet.children(supervisor, 2)
    jobs = [fleet.client.schedule_job(task, args=["job"]) for task in ("gated", "gated_plain")]
    for _ in jobs:
        fleet.stand.next("job")
    supervisor.terminate()
    fleet.wait_for_line(supervisor, "worker stopping", 2)
    with pytest.raises(TimeoutError):
        fleet.client.wait(jobs[0], 0.3)
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(10) == 0
    assert [(fleet.state(job), fleet.client.get_job_status(job).attempts) for job in jobs] == [("PENDING", 0)] * 2


def test_a_burst_of_two_processes_ends_when_all_is_done(fleet: Fleet) -> None:
    jobs = [fleet.client.schedule_job("record") for _ in range(50)]
    soon = fleet.client.schedule_job("record", delay=0.3)
    assert fleet.worker("-w", "2", "--burst", wait=False).wait(20) == 0
    assert {each["job"] for each in fleet.ledger()} == {*jobs, soon}
    assert len(fleet.ledger()) == 51


def test_what_cannot_be_imported_ends_at_once(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ImportError('no such thing')\n")
    fleet.target = "broken:app"
    began = time.monotonic()
    process = fleet.start("worker", "-w", "2", "broken:app", cwd=tmp_path)
    assert process.wait(20) == 1
    assert time.monotonic() - began < 5
    assert "no such thing" in process.output() and "Traceback" not in process.output()


def test_children_that_cannot_start_end_the_supervisor(fleet: Fleet, tmp_path: Path) -> None:
    """The parent can import the App, the children cannot: they are not started again and again."""
    (tmp_path / "picky.py").write_text(textwrap.dedent("""
        import sys, time
        from rzsched import App
        if "--supervised" in sys.argv:
            time.sleep(2.1)  # longer than a worker lives that could not start
            raise ImportError("not for children")
        app = App()
    """))
    process = fleet.start("worker", "-w", "2", "picky:app", cwd=tmp_path)
    assert process.wait(20) == 1
    assert process.output().count("worker process started") == 2


def write_version(path: Path, version: str) -> None:
    """Replace a module as an editor does; its size differs, so that no cached bytecode is taken for it."""
    path.write_text(version)


def test_a_changed_file_restarts_the_workers_and_a_broken_one_does_not_end_them(fleet: Fleet, tmp_path: Path) -> None:
    code = "from rzsched import App\napp = App()\n@app.task\nasync def version(): return {!r}\n"
    module = tmp_path / "shop.py"
    write_version(module, code.format("first"))
    supervisor = fleet.start("worker", "-r", "shop:app", cwd=tmp_path)
    fleet.wait_for_line(supervisor, "worker started")

    def version() -> object:
        return fleet.client.wait(fleet.client.schedule_job("version", max_retries=9), 20)

    assert version() == "first"
    write_version(module, code.format("the second"))
    fleet.wait_for_line(supervisor, "worker started", 2)
    assert version() == "the second"
    write_version(module, "this is no Python at all\n")
    fleet.wait_for_line(supervisor, "worker died")
    write_version(module, code.format("mended, in a third version"))
    fleet.wait_for_line(supervisor, "worker started", 3)
    assert version() == "mended, in a third version"
    assert fleet.stop(supervisor) == 0
