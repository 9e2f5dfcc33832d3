"""`rzsched doctor` on real servers: fit and unfit, idle and under load, whole and broken."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from rzsched import Client, JobSpec, keys
from rzsched.cli import cli
from rzsched.cli import doctor as command
from tests.conftest import OwnServer
from tests.fleet import Fleet, until
from tests.servers import Server, free_port
from tests.states import Stage, scheduled

PLACE = keys.partition("rz", "default", 0)


def doctor(url: str, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["doctor", *words], env={"RZSCHED_URL": url})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return str(result.output)


def verdicts(url: str, *words: str, code: int = 0) -> dict[str, str]:
    told = json.loads(doctor(url, *words, "--json", code=code))
    return {check["name"]: check["verdict"] for check in told["checks"]}


def test_a_fresh_server_is_fit(redis_url: str) -> None:
    told = verdicts(redis_url)
    assert told == {
        "version": "ok", "eviction": "ok", "memory": "ok", "persistence": "warn", "replication": "ok", "clock": "ok",
        "round_trip": "ok", "scripts": "ok", "durability": "ok", "schedulers": "warn", "workers": "warn", "audit": "ok",
    }  # fmt: skip
    lines = doctor(redis_url).splitlines()
    assert len(lines) == 1 + len(told)
    assert lines[0].split()[:2] == ["CHECK", "VERDICT"]


def test_an_unfit_server_is_named_not_only_refused(own_server: OwnServer) -> None:
    server = own_server("--maxmemory-policy", "allkeys-lru", "--maxmemory", "3mb")
    told = verdicts(server.url, code=1)
    assert told["eviction"] == "bad"
    assert told["version"] == told["audit"] == "ok", "the other checks are made all the same"
    assert "CONFIG SET maxmemory-policy noeviction" in doctor(server.url, code=1)


def test_a_replica_and_its_master(own_server: OwnServer) -> None:
    master = own_server("--repl-diskless-sync", "no", "--appendonly", "yes")
    replica = own_server("--replicaof", "127.0.0.1", str(master.port))
    with redis.Redis.from_url(replica.url) as link:
        until(lambda: link.info("replication")["master_link_status"] == "up")
    told = verdicts(replica.url, code=1)
    assert told["replication"] == "bad"
    assert "audit" not in told
    assert verdicts(master.url)["replication"] == "ok"
    assert "memory, replicated" in doctor(master.url)


def test_a_user_who_may_not_ask_is_told_what_is_unknown(own_server: OwnServer) -> None:
    server = own_server()
    with redis.Redis.from_url(server.url) as link:
        link.execute_command("ACL", "SETUSER", "app", "on", ">S3CRET", "~*", "&*", "+@all", "-config", "-info")
    url = server.url.replace("127.0.0.1", "app:S3CRET@127.0.0.1")
    assert "S3CRET" not in doctor(url, code=4)
    with redis.Redis.from_url(server.url) as link:
        link.execute_command("ACL", "SETUSER", "app", "+info", "-script")
    told = verdicts(url, code=1)
    assert told["scripts"] == "bad"
    assert told["persistence"] == "warn"


def test_a_server_that_is_away() -> None:
    assert "can't reach redis" in doctor(f"redis://127.0.0.1:{free_port()}/0", code=4)


def test_a_crowded_server_is_audited_when_asked(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "AUDITED_KEYS", 3)
    with Client(redis_url) as client:
        client.schedule_many([JobSpec("t")] * 10)
    told = json.loads(doctor(redis_url, "--json"))
    assert told["audit"] is None
    assert "rzsched doctor --audit" in doctor(redis_url)
    told = json.loads(doctor(redis_url, "--audit", "--json"))
    assert told["audit"]["counts"]["ready"] == 10
    assert verdicts(redis_url, "--fix")["audit"] == "ok"


def test_what_is_broken_is_said_and_mended(redis_url: str) -> None:
    stage = Stage(redis_url)
    job_id = scheduled(stage)
    stage.raw.zrem(stage.place.scheduled, job_id)
    stage.raw.hset(stage.place.job("other.0.x"), mapping={"task": "t"})
    stage.raw.zadd(stage.place.scheduled, {"other.0.x": 10**13})
    output = doctor(redis_url, code=1)
    assert f"found nowhere {job_id}" in output
    output = doctor(redis_url, "--fix", code=1)
    assert f"mended {job_id}: put back" in output
    assert "found wrong_partition other.0.x" in output, "what no rule can decide stays, and is said"
    assert "found nowhere" not in output
    stage.raw.zrem(stage.place.scheduled, "other.0.x")
    stage.raw.delete(stage.place.job("other.0.x"))
    stage.raw.sadd(stage.place.schedules, "gone")
    told = json.loads(doctor(redis_url, "--fix", "--json"))
    assert [mend["key"] for mend in told["mends"]] == ["cron:gone"]
    assert told["audit"]["findings"] == []
    stage.close()


@pytest.fixture
def fleet(own_server: OwnServer) -> Iterator[Fleet]:
    with Fleet(own_server().url) as made:
        yield made


BREAKS: list[Callable[[Any, str], object]] = [
    lambda raw, job_id: raw.zrem(PLACE.scheduled, job_id),
    lambda raw, job_id: raw.xadd(PLACE.ready[5], {"id": job_id}),
    lambda raw, job_id: raw.set(PLACE.lock(job_id), "nobody#1"),
    lambda raw, job_id: raw.expire(PLACE.job(job_id), 1000),
    lambda raw, job_id: raw.hset(PLACE.job(job_id), "entry", "5/1-1"),
    lambda raw, job_id: raw.hset(PLACE.job(job_id), "max_retries", "many"),
    lambda raw, job_id: raw.delete(f"{PLACE.base}idem:{job_id}"),
    lambda raw, job_id: raw.hset(PLACE.job(job_id), "state", "RUNNING"),
]


def test_under_load_it_finds_nothing_false_and_mends_without_harm(fleet: Fleet) -> None:
    workers = [fleet.worker("-c", "20") for _ in range(2)]
    later = [JobSpec("record", args=(number,), delay=number / 100) for number in range(500)]
    flow = [fleet.client.schedule_many(later)]
    for _ in range(3):
        told = json.loads(doctor(fleet.url, "--audit", "--json"))
        assert told["audit"]["findings"] == []
        assert {check["name"]: check["verdict"] for check in told["checks"]}["workers"] == "ok"
        flow.append(fleet.client.schedule_many([JobSpec("record", args=(number,)) for number in range(200)]))
    victims = [
        fleet.client.schedule_job("record", args=(number,), delay=3600, idempotency_key=f"k{number}")
        for number in range(10 * len(BREAKS))
    ]
    for number, job_id in enumerate(victims):
        BREAKS[number % len(BREAKS)](fleet.redis, f"k{number}" if number % len(BREAKS) == 6 else job_id)
    for number in range(10):
        fleet.redis.zadd(PLACE.scheduled, {f"default.0.gone{number}": 10**13})
        fleet.redis.set(f"{PLACE.base}idem:no job {number}", "default.0.gone")
        fleet.redis.set(PLACE.lock(f"default.0.gone{number}"), "nobody#1")
    told = json.loads(doctor(fleet.url, "--fix", "--json"))
    assert told["audit"]["findings"] == []
    assert len({mend["key"] for mend in told["mends"]}) >= 90 - 10, "the workers drop foreign entries themselves"
    every = {job_id for ids in flow for job_id in ids}
    until(lambda: len({each["job"] for each in fleet.ledger()} & every) == len(every), "every job of the flow")
    assert len([each for each in fleet.ledger() if each["job"] in every]) == len(every), "each ran once"
    for job_id in victims:
        assert fleet.state(job_id) in {"PENDING", "SUCCEEDED"}
    fleet.check()
    assert [fleet.stop(worker) for worker in workers] == [0, 0]


def test_the_sessions_server_is_fit_for_all_kinds(server: Server) -> None:
    assert verdicts(server.url)["version"] == "ok"
