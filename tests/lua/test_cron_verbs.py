"""The scripts of schedules: every status, the guards, and what the end of an occurrence lets begin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rzsched import Client, CronNotFound, cron_calls, keys
from rzsched.connect import AsyncLink, LinkSettings
from rzsched.firing import fire_due
from rzsched.schedule import GRACE_MS
from tests.states import Stage, outcome

MINUTE = 60_000


class Crons:
    """A stage with schedules of one minute, whose clock the test moves."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.now_ms -= stage.now_ms % MINUTE
        self.place = stage.place

    def add(self, id: str = "each", **said: Any) -> str:
        if "every" not in said and "cron" not in said:
            said["cron"] = "* * * * *"
        name = self.stage.client.schedule_cron("task", id=id, queue=self.place.queue, **said)
        self.set_next(name, self.stage.now_ms + MINUTE)
        return name

    def set_next(self, id: str, next_ms: int) -> None:
        self.stage.raw.hset(self.place.cron(id), "next", next_ms)
        self.stage.raw.zadd(self.place.crons, {id: next_ms})

    def fire(self, grace_ms: int = GRACE_MS) -> int:
        async def once() -> int:
            link = AsyncLink(self.stage.url, LinkSettings())
            try:
                return await fire_due(link, "rz", self.place, grace_ms=grace_ms, now_ms=self.stage.now)
            finally:
                await link.aclose()

        return asyncio.run(once())

    def tick(self, minutes: int = 1, **more: Any) -> None:
        self.stage.now_ms += minutes * MINUTE
        self.fire(**more)

    def field(self, name: str, id: str = "each") -> str:
        return (self.stage.raw.hget(self.place.cron(id), name) or b"").decode()

    def counts(self, id: str = "each") -> tuple[int, int, int]:
        found = self.stage.client.get_cron(id)
        return found.fired, found.missed, found.skipped

    def job(self, at_ms: int, id: str = "each") -> str:
        return f"{self.place.name}.{id}-{at_ms}"

    @property
    def held(self) -> list[int]:
        return [int(at) for at in self.stage.raw.lrange(self.place.base + "held:each", 0, -1)]


@pytest.fixture
def crons(stage: Stage) -> Crons:
    return Crons(stage)


def ended(crons: Crons, what: str = "SUCCEEDED") -> None:
    """Claim what is ready, and end it."""
    worker = crons.stage.new_worker()
    runs = crons.stage.claim(worker)
    assert runs
    crons.stage.finish(worker, *(outcome(what, run) for run in runs))


# ---- registering


def test_an_unchanged_definition_never_moves_the_next_instant(crons: Crons) -> None:
    crons.add()
    before = crons.field("next")
    crons.stage.client.schedule_cron("task", id="each", queue="q", cron="* * * * *")
    assert crons.field("next") == before
    crons.stage.client.schedule_cron("task", id="each", queue="q", cron="*/5 * * * *")
    assert int(crons.field("next")) % (5 * MINUTE) == 0
    assert crons.stage.raw.zcard(crons.place.crons) == 1


def test_a_change_keeps_the_counts_and_the_pause(crons: Crons) -> None:
    crons.add()
    crons.tick()
    crons.stage.client.pause_cron("each")
    crons.stage.client.schedule_cron("task", id="each", queue="q", cron="*/5 * * * *", overlap="wait")
    found = crons.stage.client.get_cron("each")
    assert (found.fired, found.paused, found.overlap, found.next_run_at) == (1, True, "wait", None)
    crons.stage.client.resume_cron("each")
    assert crons.stage.client.get_cron("each").next_run_at is not None


def test_changing_the_queue_moves_it_with_its_counts(crons: Crons) -> None:
    crons.add(overlap="wait")
    crons.tick(3, grace_ms=10 * MINUTE)
    assert len(crons.held) == 2
    before = crons.field("next")
    crons.stage.client.schedule_cron("task", id="each", queue="other", cron="* * * * *", overlap="wait")
    (found,) = crons.stage.client.list_crons()
    assert (found.queue, found.fired, found.waiting) == ("other", 1, 2)
    other = keys.partition("rz", "other", 0)
    assert crons.stage.raw.hget(other.cron("each"), "next").decode() == before
    assert not crons.stage.raw.exists(crons.place.crons, crons.place.cron("each"), crons.place.schedules)


def test_a_schedule_that_has_ended_stays_to_be_seen(crons: Crons) -> None:
    crons.stage.client.schedule_cron("task", id="each", queue="q", every=60, end=crons.stage.now_ms / 1000 - 5)
    found = crons.stage.client.get_cron("each")
    assert found.next_run_at is None
    assert crons.stage.raw.zscore(crons.place.crons, "each") == float("inf")
    crons.tick()
    assert found.fired == 0


# ---- firing


def test_an_occurrence_is_a_job_made_of_schedule_and_instant(crons: Crons) -> None:
    crons.add(args=(1,), priority=2, max_retries=1)
    crons.tick()
    at = crons.stage.now_ms
    job = crons.stage.job(crons.job(at))
    assert {name: job[name] for name in ("schedule_id", "scheduled_for", "priority", "max_retries", "due_at")} == {
        "schedule_id": "each", "scheduled_for": str(at), "priority": "2", "max_retries": "1", "due_at": str(at),
    }  # fmt: skip
    status = crons.stage.client.get_job_status(crons.job(at))
    assert status.schedule_id == "each"
    assert status.scheduled_for is not None and status.scheduled_for.timestamp() * 1000 == at
    assert crons.field("next") == str(at + MINUTE)
    assert crons.fire() == 0


def test_an_id_with_dots_is_found_again(crons: Crons) -> None:
    crons.add("a.b")
    crons.tick()
    status = crons.stage.client.get_job_status(crons.job(crons.stage.now_ms, "a.b"))
    assert status.schedule_id == "a.b"


def test_only_one_of_two_who_read_the_same_fires(crons: Crons) -> None:
    crons.add()
    read = crons.field("next")
    call = cron_calls.fire(crons.place, "each", read, int(read) + 1, 0, [(int(read), "", "fired")], crons.stage.now)
    assert crons.stage.run(call).status == "FIRED"
    assert crons.stage.run(call).status == "MOVED"
    assert crons.counts()[0] == 1


def test_what_is_gone_or_paused_does_not_fire(crons: Crons) -> None:
    call = cron_calls.fire(crons.place, "each", "1", 2, 0, [(1, "", "fired")])
    assert crons.stage.run(call).status == "GONE"
    crons.add()
    crons.stage.client.pause_cron("each")
    read = crons.field("next")
    assert crons.stage.run(cron_calls.fire(crons.place, "each", read, 2, 0, [(1, "", "fired")])).status == "PAUSED"
    crons.tick()
    assert crons.counts() == (0, 0, 0)


def test_jitter_moves_the_start_and_not_the_instant(crons: Crons) -> None:
    crons.add(jitter=30)
    starts = []
    for _ in range(5):
        crons.tick()
        at = crons.stage.now_ms
        due = crons.stage.raw.zscore(crons.place.scheduled, crons.job(at))
        starts.append((due or at) - at)
        assert crons.stage.job(crons.job(at))["scheduled_for"] == str(at)
        crons.stage.cancel(crons.job(at))
    assert all(0 <= start <= 30_000 for start in starts) and len(set(starts)) > 1


# ---- overlap


def test_skip_leaves_out_what_is_due_while_the_last_one_lives(crons: Crons) -> None:
    crons.add()
    crons.tick()
    crons.tick()
    assert crons.counts() == (1, 0, 1)
    ended(crons)
    crons.tick()
    assert crons.counts() == (2, 0, 1)


@pytest.mark.parametrize("end", ["SUCCEEDED", "DEAD", "CANCELLED", "cancel", "lost"])
def test_whatever_ends_a_run_lets_the_next_one_begin(crons: Crons, end: str) -> None:
    crons.add(overlap="wait", max_retries=0)
    for _ in range(3):
        crons.tick()
    first, second, third = (crons.stage.now_ms - n * MINUTE for n in (2, 1, 0))
    assert crons.held == [second, third]
    if end == "cancel":
        crons.stage.cancel(crons.job(first))
    elif end == "lost":
        crons.stage.claim("w")
        crons.stage.lose_lease(crons.job(first))
        assert crons.stage.recover()[0][1] == "DEAD"
    else:
        ended(crons, end)
    assert crons.held == [third]
    assert crons.stage.state(crons.job(second)) == "PENDING"
    ended(crons)
    ended(crons)
    assert crons.held == []
    assert crons.counts() == (3, 0, 0)


def test_a_retry_that_waits_has_not_ended(crons: Crons) -> None:
    crons.add()
    crons.tick()
    run = crons.stage.claim("w")[0]
    crons.stage.finish("w", outcome("RETRY", run, "no", "90000"))
    crons.tick()
    assert crons.counts() == (1, 0, 1)


def test_coalesce_keeps_the_newest_only(crons: Crons) -> None:
    crons.add(overlap="coalesce")
    for _ in range(4):
        crons.tick()
    assert crons.held == [crons.stage.now_ms]
    assert crons.counts() == (1, 0, 2)
    ended(crons)
    assert crons.stage.state(crons.job(crons.stage.now_ms)) == "PENDING"


def test_cancel_asks_the_running_one_to_stop_and_begins_when_it_has(crons: Crons) -> None:
    crons.add(overlap="cancel")
    crons.tick()
    (run,) = crons.stage.claim("w")
    crons.tick()
    assert crons.stage.job(run.id)["cancel_requested"]
    newest = crons.job(crons.stage.now_ms)
    assert crons.stage.state(newest) == "gone"
    crons.stage.finish("w", outcome("CANCELLED", run, "cancelled"))
    assert crons.stage.state(newest) == "PENDING"
    crons.tick()
    assert crons.stage.state(newest) == "CANCELLED"
    assert crons.stage.state(crons.job(crons.stage.now_ms)) == "PENDING"


def test_allow_lets_them_run_side_by_side(crons: Crons) -> None:
    crons.add(overlap="allow")
    for _ in range(3):
        crons.tick()
    assert len(crons.stage.claim("w")) == 3


def test_what_one_firing_brings_runs_one_by_one(crons: Crons) -> None:
    """A takeover that took some seconds must not cost ticks, also where the overlap is skipped."""
    crons.add()
    crons.tick(3, grace_ms=10 * MINUTE)
    assert len(crons.held) == 2
    for _ in range(3):
        ended(crons)
    assert crons.counts() == (3, 0, 0)


def test_a_dead_or_kept_occurrence_never_blocks_the_next(crons: Crons) -> None:
    crons.add(max_retries=0)
    for _ in range(5):
        crons.tick()
        ended(crons, "DEAD")
    assert crons.counts() == (5, 0, 0)
    assert crons.stage.check().counts.dead == 5


def test_a_replayed_last_occurrence_counts_as_running_again(crons: Crons) -> None:
    crons.add(max_retries=0)
    crons.tick()
    ended(crons, "DEAD")
    crons.stage.over_dead("replay", [crons.job(crons.stage.now_ms)])
    crons.tick()
    assert crons.counts() == (1, 0, 1)


# ---- misfire


def test_once_runs_the_newest_missed_one_late(crons: Crons) -> None:
    crons.add()
    crons.stage.now_ms += 500 * MINUTE + 30_000
    crons.fire()
    newest = crons.stage.now_ms - 30_000
    assert crons.counts() == (1, 500, 0)
    assert crons.field("last") == str(newest)
    assert crons.field("next") == str(newest + MINUTE)
    assert [run.outcome for run in crons.stage.client.get_cron("each").history] == ["fired late"]


def test_all_runs_the_newest_ones_oldest_first(crons: Crons) -> None:
    crons.add(misfire="all", misfire_limit=4)
    crons.stage.now_ms += 10 * MINUTE + 30_000
    crons.fire()
    newest = crons.stage.now_ms - 30_000
    seen = []
    for _ in range(4):
        worker = crons.stage.new_worker()
        (run,) = crons.stage.claim(worker)
        seen.append(run.id)
        crons.stage.finish(worker, outcome("SUCCEEDED", run))
    assert seen == [crons.job(newest - n * MINUTE) for n in (3, 2, 1, 0)]
    assert crons.counts() == (4, 10, 0)


def test_skip_only_counts_what_was_missed(crons: Crons) -> None:
    crons.add(misfire="skip")
    crons.stage.now_ms += 10 * MINUTE + 30_000
    crons.fire()
    assert crons.counts() == (0, 10, 0)


# ---- by hand


def test_trigger_runs_beside_the_plan_and_waits_its_turn(crons: Crons) -> None:
    crons.add()
    before = crons.field("next")
    first, second = crons.stage.client.trigger_cron("each"), crons.stage.client.trigger_cron("each")
    assert first != second
    assert [run.id for run in crons.stage.claim("w")] == [first]
    assert len(crons.held) == 1
    crons.stage.cancel(first)
    assert crons.field("next") == before


def test_backfill_runs_a_range_of_the_past_in_order(crons: Crons) -> None:
    crons.add()
    end = crons.stage.now_ms / 1000 - 3600
    ids = crons.stage.client.backfill_cron("each", end - 300, end)
    assert len(ids) == 6
    seen = []
    for _ in range(6):
        (run,) = crons.stage.claim("w")
        seen.append(run.id)
        crons.stage.finish("w", outcome("SUCCEEDED", run))
    assert seen == ids == sorted(ids)
    assert crons.stage.client.backfill_cron("each", end - 300, end) == []
    with pytest.raises(ValueError, match="future"):
        crons.stage.client.backfill_cron("each", end, end + 10**6)


def test_schedules_of_one_concurrency_key_take_turns(crons: Crons) -> None:
    crons.add("a", concurrency_key="customer-7")
    crons.add("b", concurrency_key="customer-7")
    crons.tick()
    seen = []
    for _ in range(2):
        (run,) = crons.stage.claim("w")
        seen.append(run.id)
        crons.stage.finish("w", outcome("SUCCEEDED", run))
    assert sorted(seen) == [crons.job(crons.stage.now_ms, "a"), crons.job(crons.stage.now_ms, "b")]
    assert not crons.stage.claim("w")


def test_removing_takes_the_pending_occurrence_and_spares_the_running_one(crons: Crons) -> None:
    crons.add(overlap="allow")
    crons.tick()
    (run,) = crons.stage.claim("w")
    crons.tick()
    crons.stage.client.remove_cron("each")
    assert crons.stage.state(crons.job(crons.stage.now_ms)) == "CANCELLED"
    assert crons.stage.state(run.id) == "RUNNING"
    crons.stage.finish("w", outcome("SUCCEEDED", run))
    left = [key for key in crons.stage.raw.scan_iter() if b"each" in key and b":job:" not in key]
    assert left == []
    for call in ("get_cron", "pause_cron", "resume_cron", "trigger_cron", "remove_cron"):
        with pytest.raises(CronNotFound):
            getattr(crons.stage.client, call)("each")


def test_an_app_removes_only_its_own(crons: Crons) -> None:
    crons.add()
    run = crons.stage.run
    assert run(cron_calls.unregister(crons.place, "each", "app")) == "FOREIGN"
    assert run(cron_calls.unregister(crons.place, "each")) == "REMOVED"
    assert run(cron_calls.unregister(crons.place, "each")) == "NOT_FOUND"


def test_pause_and_resume_say_what_there_is(crons: Crons) -> None:
    run, place = crons.stage.run, crons.place
    assert run(cron_calls.pause(place, "each")) == "NOT_FOUND"
    assert run(cron_calls.resume(place, "each", "", 1)) == "NOT_FOUND"
    crons.add()
    assert run(cron_calls.resume(place, "each", "", 1)) == "NOT_PAUSED"
    assert run(cron_calls.pause(place, "each")) == "PAUSED"
    assert run(cron_calls.resume(place, "each", "other", 1)) == "CHANGED"
    assert run(cron_calls.resume(place, "each", crons.field("fingerprint"), None)) == "RESUMED"


# ---- what a foreign hand did


def test_a_schedule_missing_from_the_set_is_armed_again(crons: Crons) -> None:
    crons.add()
    assert crons.stage.run(cron_calls.rearm(crons.place)) == 0
    crons.stage.raw.delete(crons.place.crons)
    assert crons.stage.run(cron_calls.rearm(crons.place, crons.stage.now)) == 1
    assert crons.stage.raw.zscore(crons.place.crons, "each") == int(crons.field("next"))


def test_a_lost_next_instant_is_computed_anew_and_nothing_fires(crons: Crons) -> None:
    crons.add()
    crons.stage.raw.hdel(crons.place.cron("each"), "next")
    crons.stage.raw.delete(crons.place.crons)
    crons.stage.run(cron_calls.rearm(crons.place, crons.stage.now))
    assert crons.fire() == 1
    assert crons.field("next") == str(crons.stage.now_ms + MINUTE)
    assert crons.counts() == (0, 0, 0)


def test_a_score_that_disagrees_with_its_definition_is_mended(crons: Crons) -> None:
    crons.add()
    crons.stage.raw.zadd(crons.place.crons, {"each": 1})
    crons.fire()
    assert crons.stage.raw.zscore(crons.place.crons, "each") == int(crons.field("next"))
    assert crons.counts() == (0, 0, 0)


def test_a_definition_that_changed_since_it_was_read_does_not_fire_as_it_was(crons: Crons) -> None:
    crons.add()
    read = crons.field("next")
    call = cron_calls.fire(crons.place, "each", read, 5, 0, [(1, "", "fired")], crons.stage.now, "another")
    assert crons.stage.run(call).status == "MOVED"


def test_an_unreadable_schedule_does_not_hold_up_the_others(crons: Crons) -> None:
    for name in ("a", "b", "c"):
        crons.add(name)
    crons.stage.raw.hset(crons.place.cron("a"), "cron", "rubbish")
    crons.stage.raw.hset(crons.place.cron("b"), "jitter", b"\xff")
    crons.tick()
    assert crons.counts("c") == (1, 0, 0)
    assert crons.fire() == 0
    crons.stage.raw.zadd(crons.place.crons, {"nobody": 1})
    crons.fire()
    assert crons.stage.raw.zscore(crons.place.crons, "nobody") is None
    for name in ("a", "b"):
        crons.stage.client.remove_cron(name)


def test_a_job_that_is_no_occurrence_costs_nothing(crons: Crons, redis_url: str) -> None:
    with Client(redis_url) as client:
        client.schedule_job("task", queue="q")
    (run,) = crons.stage.claim("w")
    crons.stage.raw.config_resetstat()
    crons.stage.finish("w", outcome("SUCCEEDED", run))
    stats = crons.stage.raw.info("commandstats")
    assert "cmdstat_hexists" not in stats and "cmdstat_lpop" not in stats
