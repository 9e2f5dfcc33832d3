"""A Redis Cluster behind every call: three masters, queues whose partitions are spread over them."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
import redis.asyncio
from click.testing import CliRunner

from rzsched import AsyncClient, Client, JobFailed, JobSpec, keys, layout, listening
from rzsched.calls import cancel, publish
from rzsched.cli import cli
from rzsched.cluster import AsyncClusterLink
from rzsched.connect import LinkSettings
from rzsched.errors import ConnectionFailed, CronNotFound, ServerUnsuitable
from rzsched.links import async_link, sync_link
from rzsched.listing import list_jobs
from rzsched.status import State
from tests.cluster_servers import Cluster
from tests.conftest import OwnServer
from tests.fleet import Fleet, until
from tests.states import assert_one_place

PARTITIONS = 6


@pytest.fixture
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster.url) as fleet:
        fleet.client.configure_queue("default", partitions=PARTITIONS)
        yield fleet


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.url) as client:
        client.configure_queue("default", partitions=PARTITIONS)
        yield client


def owners(cluster: Cluster) -> set[int]:
    return {cluster.owner(keys.partition("rz", "default", number).base).port for number in range(PARTITIONS)}


def test_a_queue_is_spread_over_the_masters_and_each_call_finds_its_way(cluster: Cluster, client: Client) -> None:
    assert len(owners(cluster)) == 3
    ids = client.schedule_many([JobSpec("t", args=(number,), delay=60) for number in range(300)])
    assert len({job.split(".")[1] for job in ids}) == PARTITIONS
    assert all(client.get_job_status(job).state is State.PENDING for job in ids[::30])
    again = [client.schedule_job("t", idempotency_key="k", delay=60) for _ in range(3)]
    assert len(set(again)) == 1
    assert client.queue_stats("default").scheduled == 301
    assert [stats.queue for stats in client.queues()] == ["default"]
    listed = client.run(list_jobs(client.space, "default", State.PENDING, 1000))
    assert {job.id for job in listed.jobs} == {*ids, again[0]}
    assert client.cancel_job(ids[0])
    cancelled = client.run(list_jobs(client.space, "default", State.CANCELLED, 10))
    assert [job.id for job in cancelled.jobs] == [ids[0]]
    assert assert_one_place(client).counts.scheduled == 300


async def test_async_calls_of_one_turn_go_to_all_nodes_side_by_side(cluster: Cluster, client: Client) -> None:
    async with AsyncClient(cluster.url) as aclient:
        ids = await asyncio.gather(*(aclient.schedule_job("t", args=(number,)) for number in range(200)))
        assert len(set(ids)) == 200
        states = await asyncio.gather(*map(aclient.get_job_status, ids))
        assert {status.state for status in states} == {State.PENDING}
    assert_one_place(client)


def test_a_worker_takes_from_all_partitions(cluster: Cluster, fleet: Fleet) -> None:
    fleet.worker("-c", "20")
    ids = fleet.client.schedule_many([JobSpec("echo", args=(number,)) for number in range(200)])
    assert [fleet.client.wait(job, 10) for job in ids] == list(range(200))
    late = fleet.client.schedule_many([JobSpec("about", args=(1,), delay=0.3)] * 12)
    assert {fleet.client.wait(job, 10)["attempt"] for job in late} == {2}
    (worker,) = fleet.client.workers()
    assert worker.concurrency == 20
    dead = fleet.client.schedule_job("dies")
    with pytest.raises(JobFailed):
        fleet.client.wait(dead, 10)
    assert [job.id for job in fleet.client.list_dead("default")] == [dead]
    assert fleet.client.replay_dead("default") == 1
    until(lambda: len(fleet.ledger(job=dead)) == 2)
    until(lambda: [job.id for job in fleet.client.list_dead("default")] == [dead])
    assert fleet.client.purge_dead("default", [dead]) == 1
    fleet.check()


def test_a_worker_with_one_slot_waits_at_all_partitions_at_once(cluster: Cluster, fleet: Fleet) -> None:
    fleet.worker("-c", "1")
    fleet.client.wait(fleet.client.schedule_job("nothing"), 10)
    waits = []
    for number in range(40):
        began = time.monotonic()
        fleet.client.wait(fleet.client.schedule_job("echo", args=(number,)), 10)
        waits.append(time.monotonic() - began)
    assert sorted(waits)[-4] < 0.5
    assert max(waits) < 2.0  # a read that waits in vain ends after 5 s
    fleet.check()


def test_a_running_job_hears_that_it_is_cancelled(cluster: Cluster, fleet: Fleet) -> None:
    fleet.worker("--lease", "30")
    job = fleet.client.schedule_job("gated", args=("held",))
    fleet.stand.next("held")
    assert fleet.client.cancel_job(job)
    fleet.stand.next("held cancelled", 5)
    until(lambda: fleet.state(job) == "CANCELLED")


def test_a_cancel_that_nobody_heard_is_found_once_somebody_listens_again(cluster: Cluster, fleet: Fleet) -> None:
    fleet.worker("--lease", "60")
    job = fleet.client.schedule_job("gated", args=("held",))
    fleet.stand.next("held")
    link = sync_link(cluster.url, LinkSettings())
    link.execute([cancel(fleet.client.space.place_of(job), job)])  # and nothing is published
    for node in cluster.masters:
        node.told("CLIENT", "KILL", "TYPE", "pubsub")
    fleet.stand.next("held cancelled", 10)
    until(lambda: fleet.state(job) == "CANCELLED")
    link.close()


async def test_waiting_hears_of_the_end_through_any_node(cluster: Cluster, fleet: Fleet) -> None:
    fleet.worker()
    async with AsyncClient(cluster.url) as client:
        for number in range(10):
            job = await client.schedule_job("echo", args=(number,), delay=0.05)
            assert await client.wait(job, 5) == number


def test_a_limit_holds_over_the_nodes_and_a_pause_reaches_them(cluster: Cluster, fleet: Fleet) -> None:
    fleet.client.configure_queue("default", concurrency=PARTITIONS)
    fleet.client.pause("default")
    ids = fleet.client.schedule_many([JobSpec("record")] * 30)
    fleet.worker("-c", "20")
    assert fleet.client.queue_stats("default").ready == 30
    fleet.client.resume("default")
    for job in ids:
        fleet.client.wait(job, 10)
    fleet.check()


def test_schedules_fire_from_whichever_node_holds_them(cluster: Cluster, fleet: Fleet) -> None:
    for name in "abcd":
        fleet.client.schedule_cron("record", every=0.5, id=name, args=(name,))
    fleet.worker()
    until(lambda: all(cron.fired >= 2 for cron in fleet.client.list_crons()))
    at = datetime.now(UTC)
    for name in "abcd":
        fleet.client.remove_cron(name)
    with pytest.raises(CronNotFound):
        fleet.client.get_cron("a")
    assert {job["task"] for job in fleet.ledger()} == {"record"}
    assert at.tzinfo is UTC
    fleet.check()


def test_a_schedule_whose_queue_changes_is_in_one_place(client: Client) -> None:
    for queue in ("default", "other", "third", "default"):
        client.schedule_cron("t", every=3600, id="moves", queue=queue)
        (cron,) = client.list_crons()
        assert (cron.id, cron.queue) == ("moves", queue)
    assert_one_place(client)


def test_a_queue_grows_on_a_cluster(fleet: Fleet) -> None:
    fleet.worker("-c", "4")
    before = fleet.client.schedule_many([JobSpec("echo", args=(number,), delay=1) for number in range(20)])
    fleet.client.configure_queue("default", partitions=2 * PARTITIONS)
    after = fleet.client.schedule_many([JobSpec("echo", args=(number,)) for number in range(100)])
    assert len({job.split(".")[1] for job in after}) == 2 * PARTITIONS
    assert [fleet.client.wait(job, layout.LAYOUT_S) for job in before + after] == [*range(20), *range(100)]
    fleet.check()


def test_the_command_line_takes_a_cluster(fleet: Fleet) -> None:
    fleet.worker("-c", "2", "--no-scheduler")
    fleet.scheduler()

    def rz(*words: str) -> str:
        result = CliRunner().invoke(cli, ["--url", fleet.url, *words])
        assert result.exit_code == 0, result.output
        return result.output

    job = rz("enqueue", "echo", "--args", "[7]").strip()
    assert rz("wait", job).strip() == "7"
    for words in (("status", job), ("queues",), ("workers",), ("dead", "list", "default"),
                  ("cron", "list"), ("jobs", "default", "--state", "SUCCEEDED"), ("pause", "default"),
                  ("resume", "default"), ("configure", "default", "--partitions", "8")):  # fmt: skip
        rz(*words)
    assert json.loads(rz("queues", "--json"))[0]["partitions"] == 8
    refused = CliRunner().invoke(cli, ["--url", fleet.url, "configure", "default", "--partitions", "3"])
    assert refused.exit_code == 2
    assert "can't shrink" in refused.output


def test_a_worker_under_a_supervisor_is_recovered_at_once(fleet: Fleet) -> None:
    supervisor = fleet.start("-v", "worker", "-w", "2", "-c", "4", "--lease", "30", "--", fleet.target)
    children = fleet.children(supervisor, 2)
    job = fleet.client.schedule_job("gated", args=("held",))
    visit = fleet.stand.next("held")
    assert visit["pid"] in children
    fleet.forker.kill(visit["pid"])
    fleet.stand.next("held", 10).say()
    assert fleet.client.wait(job, 10) == "go"
    fleet.check()


def test_scripts_that_a_node_forgot_are_loaded_again(cluster: Cluster, client: Client) -> None:
    for node in cluster.masters:
        node.redis.script_flush()
    ids = client.schedule_many([JobSpec("t")] * 100)
    assert len(set(ids)) == 100
    assert_one_place(client)


# ---- what is not a cluster, or not there


@pytest.fixture(params=[sync_link, async_link], ids=["sync", "async"])
def outcomes(request: pytest.FixtureRequest) -> Callable[[str], list[object]]:
    """Ask a link for one thing; give the outcome."""

    def ask(url: str) -> list[object]:
        link = request.param(url, LinkSettings())
        steps = [layout.look("rz", "q")]
        if request.param is sync_link:
            return list(link.outcomes(steps))

        async def run() -> list[object]:
            try:
                return list(await link.outcomes(steps))
            finally:
                await link.aclose()

        return asyncio.run(run())

    return ask


def test_a_node_asked_as_a_single_server_says_what_to_do(
    cluster: Cluster, outcomes: Callable[[str], list[object]]
) -> None:
    strange = next(node for node in cluster.masters if node is not cluster.owner(keys.queues("rz")))
    (error,) = outcomes(f"redis://127.0.0.1:{strange.port}/0")
    assert isinstance(error, ServerUnsuitable)
    assert "redis+cluster://" in str(error)


def test_a_single_server_asked_as_a_cluster_says_what_to_do(
    redis_url: str, outcomes: Callable[[str], list[object]]
) -> None:
    (error,) = outcomes(redis_url.replace("redis://", "redis+cluster://"))
    assert isinstance(error, ServerUnsuitable)
    assert "redis:// URL" in str(error)


def test_one_node_that_is_up_is_enough_to_find_the_others(
    cluster: Cluster, outcomes: Callable[[str], list[object]]
) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:{cluster.masters[2].port}"
    assert outcomes(url) == [None]


def test_a_cluster_that_is_not_there_is_said_at_once(outcomes: Callable[[str], list[object]]) -> None:
    began = time.monotonic()
    (error,) = outcomes("redis+cluster://:secret-word@127.0.0.1:1,127.0.0.1:2/")
    assert isinstance(error, ConnectionFailed)
    assert "secret-word" not in str(error)
    assert time.monotonic() - began < 5


def test_an_unfit_node_is_refused(own_server: OwnServer, outcomes: Callable[[str], list[object]]) -> None:
    server = own_server("--cluster-enabled", "yes", "--maxmemory-policy", "allkeys-lru")
    with pytest.raises(ServerUnsuitable, match="allkeys-lru"):
        raise next(iter(outcomes(server.url.replace("redis://", "redis+cluster://"))))  # type: ignore[misc]


async def _heard(listener: listening.Listener) -> dict[str, Any]:
    while (message := await listener.next()) is None:
        pass
    return message


async def test_a_listener_leaves_a_node_that_stands_still(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "QUIET_S", 0.2)
    link = AsyncClusterLink(cluster.url, LinkSettings())
    pool = await link.listener_pool()
    frozen = next(node for node in cluster.masters if node.port == pool.connection_kwargs["port"])
    async with redis.asyncio.Redis(connection_pool=pool).pubsub() as subscription:
        listener = listening.Listener(link, subscription, link.epoch, bool)
        await listener.subscribe("channel")
        await link.execute([publish("channel", "word")])
        assert (await _heard(listener))["data"] == b"word"
        os.kill(frozen.server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(redis.ConnectionError):
                await asyncio.wait_for(_heard(listener), 5)
            for _ in range(5):
                assert (await link.listener_pool()).connection_kwargs["port"] != frozen.port
        finally:
            os.kill(frozen.server.pid, signal.SIGCONT)
    await link.aclose()
    cluster.wait_until_whole()


def test_the_doctor_looks_at_every_master(cluster: Cluster, fleet: Fleet) -> None:
    fleet.client.schedule_many([JobSpec("record")] * 10)
    healthy = CliRunner().invoke(cli, ["--url", fleet.url, "doctor", "--json"])
    assert healthy.exit_code == 0, healthy.output
    told = json.loads(healthy.stdout)
    assert (told["audit"]["counts"]["ready"], told["audit"]["findings"]) == (10, [])
    odd = cluster.masters[-1]
    odd.told("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        result = CliRunner().invoke(cli, ["--url", fleet.url, "doctor", "--json"])
    finally:
        odd.told("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert result.exit_code == 1
    (eviction,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "eviction"]
    assert eviction["verdict"] == "bad" and "the master of slot" in eviction["found"]
