"""What a producer meets when the server is away, unsuitable, busy, or lost in the middle of a call."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import pytest
import redis

from rzsched import calls, keys
from rzsched.aio import AsyncClient
from rzsched.client import Client
from rzsched.config import ClientSettings
from rzsched.errors import ConnectionFailed, JobNotFound, RzschedError, ServerUnsuitable
from rzsched.job import JobSpec, State
from rzsched.refusals import CredentialsRefused
from rzsched.scripts import script
from rzsched.urls import check_url, describe_url
from tests.conftest import OwnServer
from tests.producer import Face, Front, all_that_shows, port_of
from tests.servers import free_port
from tests.states import assert_one_place

TOO_OLD = b"$29\r\n# Server\r\nredis_version:6.0.9\r\n"
PASSWORD = "p@ss/#w0rd:?%41&é"
Connect = Callable[[str], Face]


@pytest.fixture(params=["sync", "async"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    faces: list[Face] = []

    def make(url: str) -> Face:
        faces.append(Face(Client(url) if request.param == "sync" else AsyncClient(url)))
        return faces[-1]

    yield make
    for face in faces:
        await face.aclose()


async def failure_of(client: Face, **said: Any) -> RzschedError:
    with pytest.raises(RzschedError) as caught:
        await client.schedule_job("t", **said)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None, "redis-py's own errors stay inside"
    return error


def is_script(command: list[bytes], name: str) -> bool:
    return command[0] == b"EVALSHA" and command[1] == script(name).sha.encode()


def with_password(url: str, password: str) -> str:
    return url.replace("127.0.0.1", f":{quote(password, safe='')}@127.0.0.1")


async def test_a_server_that_is_not_there(connect: Connect) -> None:
    port = free_port()
    begun = time.monotonic()
    error = await failure_of(connect(f"redis://127.0.0.1:{port}/0"))
    assert isinstance(error, ConnectionFailed)
    assert f"127.0.0.1:{port}" in str(error)
    assert 0.5 < time.monotonic() - begun < 10, "it tries for about a second"


async def test_a_server_that_starts_a_moment_later(connect: Connect, own_server: OwnServer) -> None:
    server = own_server()
    server.kill()
    scheduling = asyncio.ensure_future(connect(server.url).schedule_job("t"))
    await asyncio.wait([scheduling], timeout=0.2)
    server.restart()
    assert (await scheduling).created


async def test_a_password_with_every_special_character(connect: Connect, own_server: OwnServer) -> None:
    port = own_server("--requirepass", PASSWORD).port
    assert (await connect(with_password(f"redis://127.0.0.1:{port}/0", PASSWORD)).schedule_job("t")).created


@pytest.mark.parametrize("given", ["wr0ng@/#S3CRET", ""])
async def test_a_refused_password_never_shows(connect: Connect, own_server: OwnServer, given: str) -> None:
    port = own_server("--requirepass", PASSWORD).port
    plain = f"redis://127.0.0.1:{port}/0"
    client = connect(with_password(plain, given) if given else plain)
    begun = time.monotonic()
    error = await failure_of(client)
    assert isinstance(error, CredentialsRefused)
    assert time.monotonic() - begun < 2, "no use trying again"
    shown = all_that_shows(error) + repr(client.client)
    for secret in filter(None, (given, quote(given, safe=""), "S3CRET")):
        assert secret not in shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://:12#S3CRET@127.0.0.1:6379/0", "redis://u:12/S3CRET@127.0.0.1:6379/0", "redis://:S3CRET#4@127.0.0.1/0",
        "redis://u:12?S3CRET@127.0.0.1:6379", "redis://:S3CRET@127.0.0.1:port/0", "http://:S3CRET@127.0.0.1", "S3CRET",
        "redis://:S3CRET@127.0.0.1/0?no_such_option=1", "redis://:S3CRET@127.0.0.1/0?socket_timeout=x",
        "redis://u:1#S3CRET@127.0.0.1", "redis://[S3CRET",
    ],
)  # fmt: skip
def test_a_bad_url_is_refused_at_once_and_never_shown(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="server URL") as caught:
            kind(url)
        assert "S3CRET" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


def test_a_described_url_shows_no_credentials() -> None:
    assert describe_url("redis://u:S3CRET@h:1/0") == "h:1"
    assert describe_url("rediss://:S3CRET@[::1]:1/0") == "::1:1"
    assert describe_url("unix://u:S3CRET@/tmp/x.sock?db=1") == "unix:/tmp/x.sock"
    assert check_url("rediss://u:p%40@h:1/0?ssl_cert_reqs=none").startswith("rediss")
    with pytest.raises(TypeError):
        check_url(None)  # type: ignore[arg-type]


async def test_options_in_a_url_do_not_change_how_answers_are_read(connect: Connect, redis_url: str) -> None:
    client = connect(f"{redis_url}?decode_responses=true&protocol=3")
    job_id = await client.schedule_job("t", args=(b"\xff",))
    assert (await client.get_job_status(job_id)).state is State.PENDING


async def test_a_server_that_is_too_old(connect: Connect) -> None:
    with Front(0) as stub:
        stub.refuse = lambda command: TOO_OLD if command[0] == b"INFO" else b"+OK\r\n"
        error = await failure_of(connect(stub.url))
    assert isinstance(error, ServerUnsuitable)
    assert "6.0.9" in str(error)
    assert "6.2" in str(error)


async def test_a_server_that_may_drop_jobs(connect: Connect, own_server: OwnServer) -> None:
    server = own_server("--maxmemory-policy", "allkeys-lru")
    client = connect(server.url)
    error = await failure_of(client)
    assert isinstance(error, ServerUnsuitable)
    assert "noeviction" in str(error)
    with redis.Redis.from_url(server.url) as raw:
        assert raw.dbsize() == 0
        raw.config_set("maxmemory-policy", "noeviction")
    assert (await client.schedule_job("t")).created, "once it is set right the same client goes on"


async def test_a_server_out_of_memory_takes_nothing(connect: Connect, own_server: OwnServer) -> None:
    server = own_server()
    client = connect(server.url)
    await client.schedule_job("t", args=("S3CRET",))
    with redis.Redis.from_url(server.url) as raw:
        raw.config_set("maxmemory", "1")
        before = {key: raw.dump(key) for key in raw.keys()}  # noqa: SIM118
        for said in ({}, {"delay": 60}, {"idempotency_key": "k"}, {"queue": "new"}):
            error = await failure_of(client, args=("S3CRET",), **said)
            assert isinstance(error, ServerUnsuitable)
            assert "maxmemory" in str(error)
            assert "S3CRET" not in str(error)
        with pytest.raises(ServerUnsuitable):
            await client.schedule_many([JobSpec("t") for _ in range(1200)])
        assert {key: raw.dump(key) for key in raw.keys()} == before  # noqa: SIM118
        raw.config_set("maxmemory", "0")
    assert (await client.schedule_job("t", idempotency_key="k")).created


@pytest.mark.parametrize("reply", [b"-LOADING Redis is loading the dataset in memory\r\n",
                                   b"-BUSY Redis is busy running a script.\r\n",
                                   b"-MASTERDOWN Link with MASTER is down.\r\n"])  # fmt: skip
async def test_a_server_that_cannot_serve_yet(connect: Connect, own_server: OwnServer, reply: bytes) -> None:
    server = own_server()
    with Front(server.port) as front:
        client = connect(front.url)
        fine_at = time.monotonic() + 0.3
        front.refuse = lambda command: reply if time.monotonic() < fine_at else None
        job_id = await client.schedule_job("t")
        # A call that may not be sent twice is sent again as well, since it surely did not run.
        fine_at = time.monotonic() + 0.3
        assert await client.cancel_job(job_id)
        front.refuse = lambda command: reply
        error = await failure_of(client)
        assert isinstance(error, ConnectionFailed)


async def test_a_demoted_server(connect: Connect, own_server: OwnServer) -> None:
    server = own_server("--replica-serve-stale-data", "yes")
    client = connect(server.url)
    job_id = await client.schedule_job("t")
    with redis.Redis.from_url(server.url) as raw:
        raw.replicaof("127.0.0.1", str(free_port()))
        error = await failure_of(client)
        assert isinstance(error, ConnectionFailed)
        promoted = threading.Timer(0.2, lambda: raw.replicaof("NO", "ONE"))
        promoted.start()
        assert (await client.schedule_job("t")).created
        promoted.join()
        assert await client.cancel_job(job_id)
    assert_one_place(server.url)


async def test_scripts_that_the_server_forgot_are_taught_again(connect: Connect, redis_url: str, raw: Any) -> None:
    client = connect(redis_url)
    for _ in range(3):
        job_id = await client.schedule_job("t")
        raw.script_flush()
        assert (await client.get_job_status(job_id)).state is State.PENDING
        raw.script_flush()
        assert await client.cancel_job(job_id)
        raw.script_flush()
        assert len(await client.schedule_many([JobSpec("t") for _ in range(1200)])) == 1200
        raw.script_flush()
    assert_one_place(redis_url)


async def test_connections_killed_between_calls(connect: Connect, redis_url: str, raw: Any) -> None:
    client = connect(redis_url)
    for _ in range(20):
        job_id = await client.schedule_job("t")
        raw.client_kill_filter(_type="normal", skipme=True)
        assert (await client.get_job_status(job_id)).state is State.PENDING
        raw.client_kill_filter(_type="normal", skipme=True)
        assert (await client.schedule_job("t")).created


async def test_a_restart_of_the_server_between_calls(connect: Connect, own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    client = connect(server.url)
    ids = await asyncio.gather(*(client.schedule_job("t") for _ in range(20)))
    server.restart()
    assert {(await client.get_job_status(job_id)).state for job_id in ids} == {State.PENDING}


async def test_an_answer_lost_on_the_way_doubles_nothing(connect: Connect, redis_url: str, raw: Any) -> None:
    with Front(port_of(redis_url)) as front:
        client = connect(front.url)
        await client.schedule_job("t")
        cuts = 0

        def cut(command: list[bytes]) -> bool:
            nonlocal cuts
            if is_script(command, "enqueue") and cuts < 2:
                cuts += 1
                return True
            return False

        front.cut = cut
        ids = [await client.schedule_job("t", args=(1,))]
        assert cuts == 2
        cuts = 0
        ids += await client.schedule_many([JobSpec("t") for _ in range(1700)])
        assert cuts == 2
        front.cut = lambda command: False
        assert raw.xlen(keys.partition("rz", "default", 0).ready[5]) == len(ids) + 1 == 1702
        assert all([(await client.get_job_status(job_id)).state is State.PENDING for job_id in ids[::100]])
    assert_one_place(redis_url)


async def test_a_lost_answer_to_what_may_not_be_repeated_is_an_error(connect: Connect, redis_url: str) -> None:
    with Front(port_of(redis_url)) as front:
        client = connect(front.url)
        job_id = await client.schedule_job("t")
        with pytest.raises(JobNotFound):
            await client.cancel_job("default.0.unknown")  # from now on the server knows the script
        seen = 0

        def cut(command: list[bytes]) -> bool:
            nonlocal seen
            seen += is_script(command, "cancel")
            return is_script(command, "cancel")

        front.cut = cut
        with pytest.raises(ConnectionFailed):
            await client.cancel_job(job_id)
        assert seen == 1, "not sent again"
        assert (await client.get_job_status(job_id)).state is State.CANCELLED


async def test_only_the_call_that_may_not_be_repeated_fails_with_a_shared_trip(redis_url: str) -> None:
    with Front(port_of(redis_url)) as front:
        async with AsyncClient(front.url) as client:
            job_id = await client.schedule_job("t")
            with pytest.raises(RzschedError):
                await client.cancel_job("default.0.unknown")
            once = [True]
            front.cut = lambda command: is_script(command, "cancel") and bool(once) and once.pop()
            together = client.cancel_job(job_id), client.get_job_status(job_id), client.schedule_job("t")
            cancelled, status, new = await asyncio.gather(*together, return_exceptions=True)
            assert isinstance(cancelled, ConnectionFailed)
            assert not isinstance(status, BaseException) and status.id == job_id
            assert not isinstance(new, BaseException) and new.created


async def test_a_silent_server_is_given_up(own_server: OwnServer) -> None:
    with Front(own_server().port) as front:
        settings = ClientSettings(command_timeout_s=0.3)
        with Client(front.url, settings=settings) as client:
            client.schedule_job("t")
            front.refuse = lambda command: b""
            with pytest.raises(ConnectionFailed):
                client.schedule_job("t")
        front.refuse = lambda command: None
        async with AsyncClient(front.url, settings=settings) as aclient:
            await aclient.schedule_job("t")
            front.refuse = lambda command: b""
            with pytest.raises(ConnectionFailed):
                await aclient.schedule_job("t")
            front.refuse = lambda command: None
            assert (await aclient.schedule_job("t")).created


async def test_each_waiting_caller_gets_an_error_of_its_own() -> None:
    async with AsyncClient(f"redis://127.0.0.1:{free_port()}/0") as client:
        errors = await asyncio.gather(*(client.get_job_status("q.0.x") for _ in range(50)), return_exceptions=True)
    assert all(isinstance(error, ConnectionFailed) for error in errors)
    assert len({id(error) for error in errors}) == 50


def test_a_plain_command_may_be_a_call(redis_url: str) -> None:
    with Client(redis_url) as client:
        (answer,) = client.run(_ask())
    assert answer == 1


def _ask() -> Any:
    return (yield [calls.command("HSETNX", "h", "f", 1, read=int)])
