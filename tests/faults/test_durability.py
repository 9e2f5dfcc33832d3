"""What a call has promised is still there after the crash; what it can't promise it says."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import redis

from rzsched import App, AsyncClient, Client, JobSpec, NotDurable, RzschedError, ServerUnsuitable, keys
from rzsched.config import ClientSettings
from tests.conftest import OwnServer
from tests.fleet import until
from tests.producer import Face, Front
from tests.servers import Server
from tests.states import assert_one_place

PLACE = keys.partition("rz", "default", 0)
SHORT = ClientSettings(durability_timeout_s=0.3)
FSYNC = ("--appendonly", "yes", "--appendfsync", "everysec")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
MASTER = ("--repl-diskless-sync", "no")
LACKS_WAITAOF = "redis62"
Connect = Callable[..., Face]


@pytest.fixture(params=["sync", "async"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    faces: list[Face] = []

    def make(url: str, **said: Any) -> Face:
        faces.append(Face(Client(url, **said) if request.param == "sync" else AsyncClient(url, **said)))
        return faces[-1]

    yield make
    for face in faces:
        await face.aclose()


def raw(server: Server) -> Any:
    return redis.Redis.from_url(server.url, protocol=2)


def replica_of(own_server: OwnServer, master: Server) -> Server:
    replica = own_server("--replicaof", "127.0.0.1", str(master.port), kind=master.kind)
    with raw(replica) as link:
        until(lambda: link.info("replication")["master_link_status"] == "up", "the replica's sync")
    return replica


def is_written(link: Any) -> bool:
    return not link.info("persistence")["aof_rewrite_in_progress"]


Pair = Callable[..., tuple[Server, Server]]


@pytest.fixture(scope="module")
def kept_pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Give a master and its replica: to start them for each test would take longer than the tests."""
    with ExitStack() as servers:
        pairs: dict[str, tuple[Server, Server]] = {}

        def start(kind: str) -> tuple[Server, Server]:
            if kind not in pairs:
                master, replica = (
                    servers.enter_context(Server.start(kind, *options, dir=tmp_path_factory.mktemp("pair")))
                    for options in (MASTER, ())
                )
                with raw(replica) as link:
                    link.replicaof("127.0.0.1", master.port)
                    until(lambda: link.info("replication")["master_link_status"] == "up", "the replica's sync")
                pairs[kind] = master, replica
            with raw(pairs[kind][0]) as link:
                link.flushall()
            return pairs[kind]

        yield start


@pytest.fixture
def pair(kept_pairs: Pair, server_kind: str) -> Pair:
    return lambda kind=server_kind: kept_pairs(kind)


def waits(server: Server) -> int:
    with raw(server) as link:
        return int(link.hget(PLACE.fixed[3], "waits") or 0)


def there(server: Server, job_id: str) -> bool:
    with raw(server) as link:
        return bool(link.exists(PLACE.job(job_id)))


async def refusal(awaited: Any) -> RzschedError:
    with pytest.raises(RzschedError) as caught:
        await awaited
    return caught.value


@pytest.mark.parametrize("kind", ["valkey", LACKS_WAITAOF])
async def test_replicated_means_that_the_replica_has_it(connect: Connect, pair: Pair, kind: str) -> None:
    master, replica = pair(kind)
    client = connect(master.url, durability="replicated", settings=SHORT)
    job_id = await client.schedule_job("t", idempotency_key="k")
    assert job_id.created
    assert there(replica, job_id)
    assert await client.cancel_job(job_id)
    with raw(replica) as link:
        assert link.hget(PLACE.job(job_id), "state") == b"CANCELLED"


@pytest.mark.parametrize("kind", ["valkey", LACKS_WAITAOF])
async def test_a_paused_replica_raises_and_a_repeated_call_waits_again(
    connect: Connect, pair: Pair, kind: str
) -> None:
    master, replica = pair(kind)
    client = connect(master.url, durability="replicated", settings=SHORT)
    # Another connection, that has written nothing of its own since, must not take the wait for met.
    other = connect(master.url, durability="replicated", settings=SHORT)
    await other.schedule_job("t")
    with replica.paused():
        begun = time.monotonic()
        error = await refusal(client.schedule_job("t", idempotency_key="k"))
        assert 0.25 < time.monotonic() - begun < 3
        assert isinstance(error, NotDurable)
        assert (await client.get_job_status(error.job_id)).state == "PENDING"
        for repeating in (client, other):
            begun = time.monotonic()
            again = await refusal(repeating.schedule_job("t", idempotency_key="k"))
            assert isinstance(again, NotDurable)
            assert (again.job_ids, again.job_ids[0].created) == (error.job_ids, False)  # type: ignore[attr-defined]
            assert time.monotonic() - begun > 0.25, "a call that wrote nothing waits too"
        assert await client.schedule_job("t", durability="memory"), "what asks for less is not held up"
    at_last = await other.schedule_job("t", idempotency_key="k")
    assert (at_last, at_last.created) == (error.job_id, False)
    assert there(replica, at_last)
    assert_one_place(master.url)


async def test_no_replica_or_a_dead_one_raises_with_the_job(connect: Connect, own_server: OwnServer) -> None:
    master = own_server(*MASTER)
    client = connect(master.url, durability="replicated", settings=SHORT)
    error = await refusal(client.schedule_job("t"))
    assert isinstance(error, NotDurable)
    assert "0 of 1 replicas" in str(error)
    replica = replica_of(own_server, master)
    await client.schedule_job("t")
    replica.kill()
    error = await refusal(client.schedule_many([JobSpec("t")] * 3))
    assert isinstance(error, NotDurable)
    assert len(error.job_ids) == 3
    assert all([there(master, job_id) for job_id in error.job_ids])


async def test_a_master_that_was_replaced_vouches_for_nothing(connect: Connect, own_server: OwnServer) -> None:
    """It stood still while a replica was promoted, and the other replica still follows it and acknowledges."""
    master = own_server(*MASTER)
    follower, promoted = replica_of(own_server, master), replica_of(own_server, master)
    client = connect(master.url, durability="replicated", settings=SHORT)
    await client.schedule_job("t")
    with raw(promoted) as link:
        link.replicaof("NO", "ONE")
        for _ in range(2):  # it is not forgotten
            error = await refusal(client.schedule_job("t"))
            assert isinstance(error, NotDurable)
            assert "taken over" in str(error)
            assert there(master, error.job_id) and not there(promoted, error.job_id)
        other = connect(promoted.url, durability="replicated", settings=SHORT)
        assert "0 of 1 replicas" in str(await refusal(other.schedule_job("t")))
        link.replicaof("127.0.0.1", master.port)
        until(lambda: link.info("replication")["master_link_status"] == "up", "the replica's sync")
    await client.schedule_job("t")
    promoted.kill()
    await client.schedule_job("t")
    follower.kill()
    assert "0 of 1 replicas" in str(await refusal(client.schedule_job("t")))


async def test_a_master_that_replaced_another_is_not_doubted_for_it(connect: Connect, own_server: OwnServer) -> None:
    """The one that was replaced wakes up as a master, and was a replica of this one before."""
    first, second = own_server(*MASTER), own_server(*MASTER)
    third = replica_of(own_server, second)
    client = connect(second.url, durability="replicated", settings=SHORT)
    with raw(first) as old, raw(second) as new, raw(third) as follower:
        def follow(link: Any, server: Server) -> None:
            link.replicaof("127.0.0.1", server.port)
            until(lambda: link.info("replication")["master_link_status"] == "up", "the replica's sync")

        follow(old, second)
        await client.schedule_job("t")  # it knows both
        old.replicaof("NO", "ONE")
        assert "taken over" in str(await refusal(client.schedule_job("t")))
        for link in (new, follower):
            follow(link, first)
        new.replicaof("NO", "ONE")
        follow(follower, second)
        await client.schedule_job("t")


async def test_a_lost_answer_is_asked_for_again_with_its_wait(connect: Connect, pair: Pair) -> None:
    master, replica = pair()
    with Front(master.port) as front:
        client = connect(front.url, durability="replicated", settings=SHORT)
        await client.schedule_job("t")
        left = 1

        def cut_once(command: list[bytes]) -> bool:
            nonlocal left
            left -= command[0] == b"WAIT"
            return left == 0 and command[0] == b"WAIT"

        front.cut = cut_once
        before = waits(master)
        job_id = await client.schedule_job("t", idempotency_key="k")
        assert left < 0, "the wait was sent again"
        assert job_id.created
        assert waits(master) == before + 2, "with its mark"
        with replica.paused():
            left = 1
            assert isinstance(await refusal(client.schedule_job("t")), NotDurable), "the second try waits as the first"
    assert_one_place(master.url)


@pytest.mark.parametrize("verb", ["schedule", "cancel"])
async def test_a_server_that_dies_under_the_wait_leaves_a_named_job(
    connect: Connect, own_server: OwnServer, verb: str
) -> None:
    master = own_server(*MASTER, *ALWAYS)
    replica = replica_of(own_server, master)
    client = connect(master.url, durability="replicated")
    job_id = await client.schedule_job("t")
    with replica.paused():
        call = client.schedule_job("t") if verb == "schedule" else client.cancel_job(job_id)
        waiting = asyncio.ensure_future(call)
        with raw(master) as link:
            await asyncio.to_thread(until, lambda: link.info("clients")["blocked_clients"], "the wait")
        os.kill(master.pid, signal.SIGKILL)
        error = await refusal(waiting)
    assert isinstance(error, NotDurable), "the write was answered, and its wait was not"
    assert "cut off" in str(error)
    master.restart()
    status = await client.get_job_status(error.job_id)
    assert status.state == ("PENDING" if verb == "schedule" else "CANCELLED")


async def test_batches_wait_once_and_concurrent_calls_share_a_wait(pair: Pair) -> None:
    master, replica = pair()
    with Client(master.url, durability="replicated") as client:
        client.schedule_job("t")
        before = waits(master)
        assert len(client.schedule_many([JobSpec("t")] * 1000)) == 1000
        assert waits(master) == before + 1
    async with AsyncClient(master.url, durability="replicated", settings=SHORT) as calls_together:
        await asyncio.gather(*(calls_together.schedule_job("t") for _ in range(200)))
        assert waits(master) <= before + 4
        with replica.paused():
            slow = [asyncio.ensure_future(calls_together.schedule_job("t")) for _ in range(50)]
            await asyncio.sleep(0)
            quick = await asyncio.gather(*(calls_together.schedule_job("t", durability="memory") for _ in range(50)))
            assert all(job_id.created for job_id in quick)
            assert not any(task.done() for task in slow), "who asks for less is not behind who waits"
            errors = await asyncio.gather(*slow, return_exceptions=True)
        assert [len(error.job_ids) for error in errors if isinstance(error, NotDurable)] == [1] * 50
        assert len({error.job_id for error in errors if isinstance(error, NotDurable)}) == 50
    assert_one_place(master.url)


async def test_closing_waits_for_what_still_waits(own_server: OwnServer) -> None:
    master = own_server(*MASTER)
    client = AsyncClient(master.url, durability="replicated", settings=SHORT)
    await client.schedule_job("t", durability="memory")
    waiting = asyncio.ensure_future(client.schedule_job("t"))
    with raw(master) as link:
        await asyncio.to_thread(until, lambda: link.info("clients")["blocked_clients"], "the wait")
    await client.aclose()
    assert isinstance(await refusal(waiting), NotDurable)


FIT_FOR_FSYNC = [("valkey", FSYNC), (None, ALWAYS), (LACKS_WAITAOF, ALWAYS)]


@pytest.mark.parametrize(("kind", "options"), FIT_FOR_FSYNC)
def test_what_is_fsynced_survives_a_kill_at_once(
    own_server: OwnServer, kind: str | None, options: tuple[str, ...]
) -> None:
    server = own_server(*options, kind=kind)
    kept: list[str] = []
    for round_ in range(4):
        with Client(server.url, durability="fsync") as client:
            kept += client.schedule_many([JobSpec("t", delay=3600 if number % 2 else None) for number in range(20)])
            kept.append(client.schedule_job("t", queue="default" if round_ else "other"))
            if round_ % 2:
                client.schedule_cron("t", cron="0 0 1 1 *", id=f"yearly-{round_}")
            os.kill(server.pid, signal.SIGKILL)
        server.kill()
        server.restart()
        with Client(server.url) as client:
            assert [client.get_job_status(job_id).id for job_id in kept] == kept
            assert {stats.queue for stats in client.queues()} == {"default", "other"}
            assert len(client.list_crons()) == (round_ + 1) // 2
    assert_one_place(server.url)


@pytest.mark.parametrize("options", [(), FSYNC, (*ALWAYS, "--no-appendfsync-on-rewrite", "yes")])
async def test_a_server_that_cannot_fsync_is_refused_before_anything_is_written(
    connect: Connect, own_server: OwnServer, options: tuple[str, ...]
) -> None:
    server = own_server(*options, kind=LACKS_WAITAOF)
    client = connect(server.url, durability="fsync")
    for call in (
        client.schedule_job("t"), client.schedule_many([JobSpec("t")]), client.cancel_job("default.0.x"),
        client.schedule_cron("t", every=60), client.trigger_cron("t"), client.replay_dead("default"),
        client.backfill_cron("t", 1, 2),
    ):  # fmt: skip
        error = await refusal(call)
        assert isinstance(error, ServerUnsuitable)
        assert "set " in str(error) and "redis-cli CONFIG SET" in str(error)
    with raw(server) as link:
        assert link.dbsize() == 0
    assert await client.schedule_job("t", durability="memory")


async def test_a_file_that_is_turned_off_or_on_meanwhile_is_noticed(connect: Connect, own_server: OwnServer) -> None:
    for kind in ("valkey", LACKS_WAITAOF):
        server = own_server(*ALWAYS, kind=kind)
        client = connect(server.url, durability="fsync", settings=SHORT)
        await client.schedule_job("t")
        with raw(server) as link:
            link.config_set("appendonly", "no")
            error = await refusal(client.schedule_job("t"))
            assert isinstance(error, NotDurable)
            assert there(server, error.job_id)
            assert isinstance(await refusal(client.schedule_job("t")), ServerUnsuitable)
            link.config_set("appendonly", "yes")
            until(partial(is_written, link), "the new file")
        assert (await client.schedule_job("t")).created


async def test_a_script_that_was_forgotten_is_no_false_promise(connect: Connect, pair: Pair) -> None:
    master, replica = pair()
    client = connect(master.url, durability="replicated", settings=SHORT)
    await client.schedule_job("t")
    with raw(master) as link:
        link.script_flush()
        assert (await client.schedule_job("t")).created, "the script is loaded, and the wait covers the run"
        link.script_flush()
        with replica.paused():
            assert isinstance(await refusal(client.schedule_job("t")), NotDurable)


async def test_dead_jobs_and_occurrences_come_back_durably(connect: Connect, own_server: OwnServer) -> None:
    master = own_server(*MASTER)
    client = connect(master.url, durability="replicated", settings=SHORT)
    with Client(master.url) as at_once:
        at_once.schedule_cron("t", every=3600, id="s")
    error = await refusal(client.trigger_cron("s"))
    assert isinstance(error, NotDurable)
    assert there(master, error.job_id)
    error = await refusal(client.schedule_cron("t", every=60, id="other"))
    assert isinstance(error, NotDurable)
    assert error.job_ids == ["other"]
    error = await refusal(client.backfill_cron("s", 1, 8000))
    assert isinstance(error, NotDurable)
    assert len(error.job_ids) == 2
    await client.trigger_cron("s", durability="memory")


def test_an_app_and_its_tasks_say_it_too(own_server: OwnServer) -> None:
    server = own_server()
    app = App(server.url, durability="replicated")
    app.client.space.settings = SHORT

    @app.task
    def work() -> None: ...

    with pytest.raises(NotDurable):
        work.options(durability="replicated").enqueue()
    assert work.options(durability="memory").enqueue().created
    assert App(server.url, durability="fsync").client.space.settings.durability == "fsync"
    assert App(server.url, durability="fsync").async_client.space.settings.durability == "fsync"
    for wrong in (
        lambda: App(server.url, durability="disk"),  # type: ignore[arg-type]
        lambda: work.options(durability=True),  # type: ignore[arg-type]
        lambda: Client(server.url, durability=""),  # type: ignore[arg-type]
        lambda: app.client.schedule_job("t", durability="FSYNC"),  # type: ignore[arg-type]
        lambda: ClientSettings(replicas=0),
        lambda: ClientSettings(durability_timeout_s=0),
    ):
        with pytest.raises(ValueError, match=r"durability|replicas"):
            wrong()
    with pytest.raises(TypeError):
        ClientSettings(replicas=1.5)  # type: ignore[arg-type]
    app.client.close()
