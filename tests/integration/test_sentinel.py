"""Clients and the command line behind Sentinel: how they log in, and what they say when there is no master."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from rzsched import App, Client, ConnectionFailed
from rzsched.aio import AsyncClient
from rzsched.job import State
from rzsched.refusals import CredentialsRefused
from tests.conftest import StartProcess
from tests.fleet import until
from tests.sentinel_servers import Watched
from tests.servers import free_port
from tests.states import assert_one_place

PASSWORD = "p@ss/#w0rd:?%41&"
SENTINEL_PASSWORD = "s3ntinel&=?#/@"
SECRETS = [each for word in (PASSWORD, SENTINEL_PASSWORD) for each in (word, quote(word, safe=""))]


@pytest.fixture(scope="module")
def watched(server_kind: str) -> Iterator[Watched]:
    with Watched(server_kind, password=PASSWORD, sentinel_password=SENTINEL_PASSWORD) as made:
        yield made


async def test_every_client_logs_in_at_sentinels_and_servers(watched: Watched) -> None:
    app = App(watched.url)
    with Client(watched.url) as client:
        job_id = client.schedule_job("t")
        async with AsyncClient(watched.url) as aclient:
            assert (await aclient.get_job_status(job_id)).state is State.PENDING
            waiting = asyncio.ensure_future(aclient.wait(job_id))
            assert await app.async_client.cancel_job(job_id)
            assert "JobCancelled" in repr((await asyncio.gather(waiting, return_exceptions=True))[0])
        assert client.get_job_status(job_id).state is State.CANCELLED
        with watched.raw(watched.master) as master:
            assert master.exists("rz:queues"), "it is the master's"
        assert_one_place(client)
    await app.async_client.aclose()


def test_the_command_line_takes_a_sentinel_url(watched: Watched, processes: StartProcess) -> None:
    command = processes(sys.executable, "-m", "rzsched", "enqueue", "t", "-q", "cli", env={"RZSCHED_URL": watched.url})
    assert command.wait(20) == 0, command.output()
    with Client(watched.url) as client:
        assert client.queue_stats("cli").ready == 1


@pytest.mark.parametrize(("change", "what"), [
    ((quote(SENTINEL_PASSWORD, safe=""), "wrong-S3CRET"), "refused the user name or password"),
    ((quote(PASSWORD, safe=""), "wrong-S3CRET"), "refused the user name or password"),
    (("/jobs/", "/other/"), "know no service of that name"),
])  # fmt: skip
async def test_what_cannot_work_is_said_soon_and_without_secrets(watched: Watched, change: tuple[str, str],
                                                                 what: str) -> None:
    url = watched.url.replace(*change)
    for face in (Client(url), AsyncClient(url)):
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match=what) as caught:
            if isinstance(face, Client):
                face.schedule_job("t")
            else:
                await face.schedule_job("t")
        assert time.monotonic() - began < 3
        assert isinstance(caught.value, CredentialsRefused) == ("password" in what)
        shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {face!r}"
        assert not [secret for secret in (*SECRETS, "S3CRET") if secret in shown]
        if isinstance(face, Client):
            face.close()
        else:
            await face.aclose()


@pytest.mark.parametrize("words", [("enqueue", "t"), ("worker", "--no-wait", "tests.tasks_app:app")])
def test_sentinels_that_are_not_there_are_said_in_one_line(processes: StartProcess, words: tuple[str, ...]) -> None:
    url = f"redis+sentinel://:S3CRET@127.0.0.1:{free_port()},127.0.0.1:{free_port()}/jobs?sentinel_password=S3CRET2"
    command = processes(sys.executable, "-m", "rzsched", *words, env={"RZSCHED_URL": url, "PATH": os.environ["PATH"]})
    assert command.wait(20) == 4
    (line,) = command.output().splitlines()
    assert "none of its sentinels answers" in line and "S3CRET" not in line


async def test_sentinels_that_fall_silent_hold_nobody_up_for_long(watched: Watched) -> None:
    """The master serves on; who asks where it is now and then must not stand still for that."""
    with Client(watched.url) as client:
        async with AsyncClient(watched.url) as aclient:
            client.schedule_job("t")
            await aclient.schedule_job("t")
            for sentinel in watched.sentinels:
                os.kill(sentinel.pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                longest = 0.0
                while time.monotonic() - began < 2.5:
                    before = time.monotonic()
                    client.schedule_job("t")
                    await aclient.schedule_job("t")
                    longest = max(longest, time.monotonic() - before)
                assert longest < 2.6, "a second each, once"
            finally:
                for sentinel in watched.sentinels:
                    os.kill(sentinel.pid, signal.SIGCONT)
    until(lambda: all(sentinel.redis.ping() for sentinel in watched.sentinels))
