"""What is found is judged right, and each verdict that is not ok says what to do."""

from dataclasses import replace

import pytest

from rzsched.answers import QueueStats, WorkerInfo, read_stats
from rzsched.calls import PartitionCount
from rzsched.doctor import Facts, judge_fleet, judge_server, read_info

INFO = {
    "redis_version": "7.2.4", "valkey_version": "9.0.0", "maxmemory_policy": "noeviction", "used_memory": "1000000",
    "maxmemory": "0", "total_system_memory": "10000000", "aof_enabled": "1", "role": "master", "loading": "0",
}  # fmt: skip
WELL = Facts(INFO, {"appendfsync": "everysec", "save": ""}, 0.001, 0.0)
REPLICAS = {"slave0": "ip=1,state=online", "slave1": "ip=2,state=online"}


def with_info(**said: str) -> Facts:
    return replace(WELL, info=INFO | said)


CASES = [
    ("version", "bad", with_info(redis_version="6.0.16")),
    ("version", "warn", with_info(redis_version="")),
    ("eviction", "bad", with_info(maxmemory_policy="allkeys-lru")),
    ("eviction", "warn", with_info(maxmemory_policy="")),
    ("memory", "bad", with_info(maxmemory="1100000")),
    ("memory", "warn", with_info(maxmemory="1250000")),
    ("memory", "bad", with_info(total_system_memory="1000001")),
    ("memory", "ok", with_info(total_system_memory="")),
    ("persistence", "warn", with_info(aof_enabled="0")),
    ("persistence", "warn", replace(with_info(aof_enabled="0", rdb_last_save_time="1"), config={"save": "60 1"})),
    ("persistence", "bad", with_info(aof_enabled="0", rdb_last_bgsave_status="err")),
    ("persistence", "bad", with_info(aof_last_write_status="err")),
    ("persistence", "warn", replace(WELL, config={"appendfsync": "no"})),
    ("persistence", "warn", replace(WELL, config={})),
    ("persistence", "ok", replace(WELL, config={"appendfsync": "always"})),
    ("persistence", "warn", with_info(loading="1")),
    ("replication", "bad", with_info(role="slave")),
    ("replication", "warn", with_info(slave0="ip=1,state=wait_bgsave")),
    ("replication", "ok", with_info(**REPLICAS)),
    ("clock", "warn", replace(WELL, ahead_s=-3600.0)),
    ("clock", "ok", replace(WELL, ahead_s=1.4, round_trip_s=1.0)),
    ("round_trip", "warn", replace(WELL, round_trip_s=0.2)),
    ("scripts", "bad", replace(WELL, missing=("claim",), why_missing="NOPERM")),
]


def test_a_server_that_is_well_needs_nothing() -> None:
    checks = judge_server(WELL)
    assert {check.verdict for check in checks} == {"ok"}
    assert not any(check.advice for check in checks)
    assert len({check.name for check in checks}) == len(checks)


@pytest.mark.parametrize(("name", "verdict", "facts"), CASES)
def test_each_fact_is_judged_alone(name: str, verdict: str, facts: Facts) -> None:
    for check in judge_server(facts):
        if check.name == name:
            assert check.verdict == verdict
        elif check.name not in {"round_trip", "durability"}:
            assert check.verdict == "ok", check
        assert bool(check.advice) == (check.verdict != "ok")
        assert "\n" not in check.found + check.advice


@pytest.mark.parametrize(
    ("facts", "levels"),
    [
        (WELL, "memory"), (replace(WELL, has_waitaof=True), "memory, fsync"),
        (replace(with_info(**REPLICAS), has_waitaof=True), "memory, replicated, fsync"),
        (replace(WELL, config={"appendfsync": "always", "no-appendfsync-on-rewrite": "no"}), "memory, fsync"),
        (replace(WELL, config={"appendfsync": "always", "no-appendfsync-on-rewrite": "yes"}), "memory"),
        (replace(with_info(aof_enabled="0"), has_waitaof=True), "memory"),
    ],
)  # fmt: skip
def test_it_says_which_durability_can_be_had(facts: Facts, levels: str) -> None:
    (check,) = [check for check in judge_server(facts) if check.name == "durability"]
    assert check.found == f"calls may ask for {levels}"


def stats(**said: int) -> QueueStats:
    counts = dict.fromkeys(("scheduled", "ready", "running", "dead", "oldest_ready_age_ms"), 0) | said
    return read_stats("q", [PartitionCount(**counts, counters={})])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedulers", "workers", "queues", "schedules", "verdicts"),
    [
        (1, [WorkerInfo(id="w", queues=("q",))], [stats(ready=1, scheduled=1)], 1, "ok ok"),
        (0, [], [], 0, "warn warn"),
        (0, [WorkerInfo(id="w", queues=("q",))], [stats(scheduled=1)], 0, "warn ok"),
        (0, [WorkerInfo(id="w", queues=("q",))], [], 2, "warn ok"),
        (1, [WorkerInfo(id="w", queues=("other",))], [stats(ready=1)], 0, "ok warn"),
        (1, [WorkerInfo(id="w", queues=("other",))], [stats()], 0, "ok ok"),
    ],
)
def test_who_is_alive_is_judged_by_what_there_is_to_do(
    schedulers: int, workers: list[WorkerInfo], queues: list[QueueStats], schedules: int, verdicts: str
) -> None:
    checks = judge_fleet(schedulers, workers, queues, schedules)
    assert " ".join(check.verdict for check in checks) == verdicts
    assert all(bool(check.advice) == (check.verdict != "ok") for check in checks)


def test_info_is_read_whatever_it_says() -> None:
    assert read_info(b"# Server\r\na:1\r\nb:x:y\r\n\xff\r\n") == {"a": "1", "b": "x:y"}
