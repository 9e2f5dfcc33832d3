"""C20: what code declares no longer is gone for good, and nothing else with it."""

from __future__ import annotations

from rzsched import CronNotFound
from tests.crons_fleet import crons, nominal
from tests.fleet import Fleet, until

A, B, C = ({"cron": "* * * * * *", "id": name} for name in "abc")
LATER_B = {**B, "jitter": 3600}  # its occurrences wait


def ids(fleet: Fleet) -> list[str]:
    return [each.id for each in fleet.client.list_crons()]


def test_a_schedule_removed_from_the_code_is_gone_with_its_pending_tick(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        other = fleet.worker(env=crons(C, app="other"))
        first = fleet.worker(env=crons(A, LATER_B))
        until(lambda: fleet.client.get_cron("b").last_job_id)
        pending = fleet.client.get_cron("b").last_job_id
        assert pending is not None and fleet.state(pending) == "PENDING"
        fleet.stop(first)
        second = fleet.worker(env=crons(A))
        assert ids(fleet) == ["a", "c"]
        assert fleet.state(pending) == "CANCELLED"
        seen = len(nominal(fleet, "a"))
        until(lambda: len(nominal(fleet, "a")) >= seen + 3)
        scheduler = fleet.scheduler("tests.crons_app:app")
        fleet.stop(scheduler)
        fleet.client.remove_cron("a")
        assert ids(fleet) == ["c"]
        fleet.stop(second)
        third = fleet.worker(env=crons(A))
        assert ids(fleet) == ["a", "c"], "as documented: code brings back what it declares"
        for process in (third, other):
            assert fleet.stop(process) == 0
        try:
            fleet.client.get_cron("b")
        except CronNotFound:
            pass
        else:
            raise AssertionError("b is back")
        fleet.check()


def test_jobs_of_a_removed_task_end_and_do_not_loop(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        fleet.client.schedule_cron("no.such", id="orphan", cron="* * * * * *")
        fleet.worker("--unknown-grace", "1")
        until(lambda: fleet.client.queue_stats("default").dead >= 1, limit_s=10)
        fleet.client.remove_cron("orphan")
        until(lambda: fleet.client.queue_stats("default").ready + fleet.client.queue_stats("default").scheduled == 0)
        assert "unknown task" in fleet.client.list_dead("default")[0].error
        fleet.check()
