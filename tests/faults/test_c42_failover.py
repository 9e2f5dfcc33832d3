"""C42: sentinels make another server the master. Everybody moves there, and what was lost on the way runs again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from rzsched import AsyncClient, JobSpec, calls
from rzsched.config import ClientSettings
from rzsched.connect import AsyncLink, LinkSettings, SyncLink
from rzsched.errors import JobNotFound
from tests.fleet import Fleet, until
from tests.sentinel_servers import Watched
from tests.servers import Server

RECOVERED_S = 10.0
LEASE_S = 3.0


@pytest.fixture
def watched(server_kind: str) -> Iterator[Watched]:
    with Watched(server_kind) as made:
        yield made


def nobody_stays(watched: Watched, fleet: Fleet, server: Server) -> None:
    """Wait until the last one has left; the test's own client looks where the master is when it is used."""
    until(lambda: fleet.client.queues() and not watched.strangers(server), f"all leave {server.port}", RECOVERED_S)


def take_down(watched: Watched, fleet: Fleet, how: str) -> None:
    """Have the replica become the master, and wait until it is."""
    master, replica = watched.master, watched.replica
    if how == "asked":
        watched.failover()
        # It goes on taking writes, which are lost, until sentinels demote it or all have heard of the new master.
        nobody_stays(watched, fleet, master)
        return
    master.kill() if how == "killed" else os.kill(master.pid, signal.SIGSTOP)
    watched.wait_for_promotion(replica)


async def test_a_link_that_was_used_before_does_not_wait_for_a_master_that_stands_still(watched: Watched) -> None:
    ping = [calls.command("PING", read=bytes)]
    settings = LinkSettings(command_timeout_s=10, retry_s=0)
    link, async_link = SyncLink(watched.url, settings), AsyncLink(watched.url, settings)
    link.execute(ping)
    await asyncio.gather(*(async_link.execute(ping) for _ in range(5)))
    nothing = calls.command("BLPOP", "nothing", "1.5", read=lambda answer: answer)
    assert await async_link.execute([nothing]) == [None], "a master that takes its time and is none the less the master"
    master, replica = watched.master, watched.replica
    os.kill(master.pid, signal.SIGSTOP)
    watched.wait_for_promotion(replica)
    began = time.monotonic()
    link.execute(ping)
    await asyncio.gather(*(async_link.execute(ping) for _ in range(5)))
    assert time.monotonic() - began < 5
    link.close()
    await async_link.aclose()


async def test_what_a_master_that_stands_still_owes_is_not_waited_for_once_it_is_replaced(watched: Watched) -> None:
    async with AsyncClient(watched.url) as client:
        await client.schedule_job("t")
        os.kill(watched.master.pid, signal.SIGSTOP)
        began = time.monotonic()
        await client.get_job_status(await client.schedule_job("t"))
        assert time.monotonic() - began < RECOVERED_S < ClientSettings().command_timeout_s


@pytest.mark.parametrize("how", ["asked", "killed", "paused"])
def test_everybody_moves_to_the_new_master(watched: Watched, how: str) -> None:
    """The lease is longer than a failover takes, so that what runs goes on."""
    with Fleet(watched.url) as fleet:
        processes = [fleet.scheduler(), fleet.worker("--no-scheduler")]
        running = fleet.client.schedule_job("gated", args=["held"])
        held = fleet.stand.next("held")
        delayed = fleet.client.schedule_job("record", delay=1.5)
        waiting = fleet.client.schedule_job("record", queue="later")
        old = watched.master
        began = time.monotonic()
        take_down(watched, fleet, how)
        fleet.client.wait(fleet.client.schedule_job("record"), 10)
        fleet.client.wait(delayed, 10)
        assert time.monotonic() - began < RECOVERED_S
        held.say("done")
        assert fleet.client.wait(running, 10) == "done"
        assert fleet.state(waiting) == "PENDING"
        processes.append(fleet.worker("-q", "later"))
        fleet.client.wait(waiting, 10)
        if how == "paused":
            os.kill(old.pid, signal.SIGCONT)
        if how != "killed":
            nobody_stays(watched, fleet, old)
        assert Counter(each["job"] for each in fleet.ledger()) >= Counter([running, delayed, waiting])
        assert {process.poll() for process in processes} == {None}, "nobody exits"
        assert [fleet.stop(process) for process in processes] == [0, 0, 0]
        fleet.check()


def test_lost_acknowledgements_mean_a_second_run_with_a_higher_fence(watched: Watched) -> None:
    with Fleet(watched.url) as fleet:
        worker = fleet.worker("--lease", str(LEASE_S))
        fleet.client.schedule_job("record", queue="other")
        fleet.client.pause("default")
        jobs = fleet.client.schedule_many(JobSpec("record") for _ in range(20))
        running = fleet.client.schedule_job("gated", args=["held"])
        with watched.raw(watched.master) as raw:
            assert raw.wait(1, 5000) == 1
        watched.stop_replication()
        fleet.client.resume("default")
        lost = fleet.client.schedule_many(JobSpec("record") for _ in range(20))
        for job in (*jobs, *lost):
            fleet.client.wait(job, 10)
        first_visit = fleet.stand.next("held")
        before = fleet.ledger()
        take_down(watched, fleet, "asked")
        watched.allow_replication()
        # That it was resumed is lost as well.
        fleet.client.resume("default")
        again = fleet.stand.next("held")
        assert again["fence"] > first_visit["fence"]
        again.say("done")
        for job in (*jobs, running):
            fleet.client.wait(job, 10)
        runs = fleet.ledger()
        assert Counter(each["job"] for each in runs if each["job"] in jobs) == dict.fromkeys(jobs, 2)
        assert len(before) == 41 and len(runs) == len(before) + 21
        fences = [each["fence"] for each in runs]
        assert min(fences[41:]) > max(fences[:41]), "no fence comes twice"
        for job in lost:
            with pytest.raises(JobNotFound):
                fleet.client.get_job_status(job)
        stats = fleet.client.queue_stats("default")
        assert (stats.running, stats.ready, stats.dead) == (0, 0, 0)
        assert fleet.stop(worker) == 0
        fleet.check()
