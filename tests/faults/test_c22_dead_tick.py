"""C22: a dead tick blocks no later one."""

from __future__ import annotations

import time

from tests.crons_fleet import crons, nominal
from tests.fleet import Fleet, until

FOR_S = 8.0


def test_each_tick_dies_by_itself_and_the_first_after_the_fix_succeeds(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        declared = {"cron": "* * * * * *", "id": "failing", "task": "fail"}
        broken = fleet.worker(env=crons(declared))
        began = time.time()
        until(lambda: time.time() > began + FOR_S, limit_s=15)
        fleet.stop(broken)
        dead = [job.id for job in fleet.client.list_dead("default")]
        assert len(dead) == len(set(dead)) == len(nominal(fleet))
        assert FOR_S - 1 <= len(dead) <= FOR_S + 2
        fixed = fleet.worker(env=crons(declared, RZSCHED_TEST_FIXED="1"))
        until(lambda: fleet.client.queue_stats("default").succeeded >= 2)
        fleet.wait_for_line(fixed, "outcome=succeeded")
        assert len(fleet.client.list_dead("default")) == len(dead)
        fleet.check()
