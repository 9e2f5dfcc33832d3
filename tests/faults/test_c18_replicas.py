"""C18: many replicas with one host name, killed and stopped; each tick once."""

from __future__ import annotations

import signal
import time

from tests.crons_fleet import crons, nominal
from tests.fleet import Fleet, until

FOR_S = 12.0


def test_every_nominal_second_once_while_schedulers_die(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        declared = crons({"cron": "* * * * * *", "id": "second"}, HOSTNAME="app")
        fleet.worker("--no-scheduler", env=declared)
        forked = [fleet.forker.scheduler() for _ in range(5)]
        stopped = fleet.start("scheduler", env=declared)
        fleet.wait_for_line(stopped, "scheduler started")
        until(lambda: len(nominal(fleet)) >= 2)
        first = int(nominal(fleet)[0])
        began = time.time()
        stopped.send_signal(signal.SIGSTOP)
        for wave in range(3):
            until(lambda wave=wave: time.time() > began + FOR_S * (wave + 1) / 4, limit_s=20)  # type: ignore[misc]
            fleet.forker.kill(forked.pop(0))
            forked.append(fleet.forker.scheduler())
            if wave == 1:
                stopped.send_signal(signal.SIGCONT)
        until(lambda: time.time() > began + FOR_S, limit_s=20)
        last = max(int(at) for at in nominal(fleet))
        until(lambda: nominal(fleet)[-1] >= last)
        ran = [int(at) for at in nominal(fleet) if at <= last]
        assert sorted(ran) == list(range(first, last + 1))
        assert last - first >= FOR_S - 3
        late = max(run["time"] - run["scheduled_for"] for run in fleet.ledger())
        assert late < 3.5, late
        fleet.check()
