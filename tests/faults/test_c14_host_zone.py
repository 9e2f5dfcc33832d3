"""C14: the zone of a host means nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.conftest import ROOT
from tests.crons_fleet import crons, nominal
from tests.fleet import Fleet, until

ZONES = ("UTC", "Australia/Sydney", "America/New_York")
DECLARED = crons({"cron": "*/2 * * * * *", "id": "two"}, {"cron": "1 12 * * *", "id": "noon", "tz": "Europe/Rome"})


def in_zone(fleet: Fleet, zone: str, *words: str) -> str:
    return subprocess.run([sys.executable, "-m", "rzsched", "--url", fleet.url, "cron", *words], cwd=ROOT, text=True,
                          env={**os.environ, "TZ": zone}, capture_output=True, timeout=30, check=True).stdout


def test_three_zones_keep_one_schedule_each_with_one_instant(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        for zone in ZONES:
            fleet.worker(env={**DECLARED, "TZ": zone})
        began = time.time()
        scores = {fleet.redis.zscore(fleet.place.crons, "noon")}
        for zone in ZONES:
            in_zone(fleet, zone, "add", "tick", "--id", "noon", "--cron", "1 12 * * *", "--tz", "Europe/Rome")
            scores.add(fleet.redis.zscore(fleet.place.crons, "noon"))
        assert len(scores) == 1
        until(lambda: time.time() > began + 7, limit_s=15)
        assert fleet.redis.zcard(fleet.place.crons) == 2
        ticks = [at for at in nominal(fleet) if began <= at <= began + 6]
        assert len(ticks) in {3, 4} and len(set(ticks)) == len(ticks)
        assert all(at % 2 == 0 for at in ticks)
        printed = {in_zone(fleet, zone, "next", "1 12 * * *", "--tz", "Europe/Rome", "-n", "5") for zone in ZONES}
        assert len(printed) == 1
        fleet.check()
