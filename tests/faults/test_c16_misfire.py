"""C16: what was missed while nothing ran is run by the policy, and counted."""

from __future__ import annotations

import time

from tests.crons_fleet import nominal
from tests.fleet import Fleet, until

DOWN_S = 7.0


def test_policies_after_down_time(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        fleet.worker("--no-scheduler")
        for name, policy in {"skip": "skip", "once": "once", "all": "all"}.items():
            fleet.client.schedule_cron("tick", id=name, cron="* * * * * *", misfire=policy, misfire_limit=4)
        weekly = fleet.client.schedule_cron("tick", id="weekly", cron="0 0 * * 0")
        scheduler = fleet.scheduler()
        until(lambda: len(nominal(fleet, "skip")) >= 2)
        fleet.kill(scheduler)
        died = time.time()
        before = {name: set(nominal(fleet, name)) for name in ("skip", "once", "all")}
        missed = {name: fleet.client.get_cron(name).missed for name in before}  # until the first scheduler was up
        until(lambda: time.time() > died + DOWN_S, limit_s=10)
        known = set(fleet.redis.zrange("rz:schedulers", 0, -1))
        fleet.scheduler()
        until(lambda: not known.issuperset(fleet.redis.zrange("rz:schedulers", 0, -1)))
        began = time.time()
        until(lambda: all(max(nominal(fleet, name)) > began + 2 for name in before))
        late = {
            name: [at for at in nominal(fleet, name) if at not in before[name] and at < began - 1.5] for name in before
        }
        assert late["skip"] == []
        assert len(late["once"]) <= 1  # the newest missed one, which may be only just late
        assert len(late["all"]) >= 3 and late["all"] == sorted(late["all"])
        found = {each.id: each for each in fleet.client.list_crons()}
        for name in before:
            assert began - died - 3 <= found[name].missed - missed[name] <= began - died + 1, found[name]
            assert len(nominal(fleet, name)) == len(set(nominal(fleet, name)))
        assert found[weekly].fired == 0
        fleet.check()


def test_a_schedule_a_year_behind_is_back_on_its_grid_at_once(redis_url: str) -> None:
    with Fleet(redis_url, "tests.crons_app:app") as fleet:
        fleet.client.schedule_cron("tick", id="old", cron="* * * * *")
        year_ago = (time.time() - 365 * 86_400) // 60 * 60_000
        fleet.redis.hset(fleet.place.cron("old"), "next", int(year_ago))
        fleet.redis.zadd(fleet.place.crons, {"old": year_ago})
        fleet.scheduler()
        until(lambda: fleet.redis.zscore(fleet.place.crons, "old") > time.time() * 1000, limit_s=2)
        found = fleet.client.get_cron("old")
        assert (found.fired, found.history[-1].outcome) == (1, "fired late")
        assert 525_500 < found.missed < 525_700
