"""Connections that lead nowhere, and a worker that is cut off for longer than its lease."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from rzsched import Client, calls, keys, pump, reader
from rzsched.aio import AsyncClient
from rzsched.config import ClientSettings
from rzsched.connect import LinkSettings
from rzsched.errors import ConnectionFailed
from rzsched.links import async_link
from rzsched.scripts import script
from tests.conftest import OwnServer
from tests.fleet import Fleet, until
from tests.producer import Front, port_of
from tests.states import assert_one_place
from tests.wire import ANSWERS, REQUESTS, Wire

GOES_ON_S = 8.0
"""What README promises: the server's answer is waited for 5 s, and what was asked is asked again."""


def forget(seen: threading.Semaphore) -> None:
    """Count anew: what was seen till now does not matter."""
    while seen.acquire(blocking=False):
        pass


@pytest.mark.parametrize("direction", [REQUESTS, ANSWERS])
async def test_clients_leave_a_connection_that_leads_nowhere(redis_url: str, direction: str) -> None:
    settings = ClientSettings(command_timeout_s=0.5)
    with Wire(port_of(redis_url)) as wire, Client(wire.url, settings=settings) as client:
        async with AsyncClient(wire.url, settings=settings) as aclient:
            first = client.schedule_job("t"), await aclient.schedule_job("t")
            wire.freeze(direction)
            began = time.monotonic()
            # All the connections of the pool at once, and none of them is tried twice.
            assert (await aclient.schedule_job("t", idempotency_key="a")).created
            assert client.schedule_job("t", idempotency_key="b").created
            assert (await aclient.get_job_status(first[0])).id == first[0]
            assert time.monotonic() - began < 2.5
            assert client.queue_stats("default").ready == 4, "nothing was doubled"


def test_workers_and_schedulers_leave_connections_that_lead_nowhere(redis_url: str) -> None:
    """All at once, for bytes lost on the way there and on the way back: pump, blocking read, listeners, leases."""
    with ExitStack() as stack:
        fleets = []
        for direction in (REQUESTS, ANSWERS):
            wire = stack.enter_context(Wire(port_of(redis_url)))
            fleet = stack.enter_context(Fleet(redis_url))
            fleet.worker("--lease", "3", "-q", direction, url=wire.url)
            held = fleet.client.schedule_job("gated", args=["held"], queue=direction)
            visit = fleet.stand.next("held")
            fleets.append((direction, wire, fleet, held, visit))
        began = time.monotonic()
        expected = []
        for direction, wire, fleet, held, visit in fleets:
            wire.freeze(direction)
            visit.say("done")
            expected += [(fleet, held), (fleet, fleet.client.schedule_job("record", delay=0.5, queue=direction))]
            expected.append((fleet, fleet.client.schedule_job("record", queue=direction)))
            to_cancel = fleet.client.schedule_job("until_cancelled", args=["soon"], queue=direction)
            expected.append((fleet, to_cancel))
        for fleet, job in expected:
            if fleet.client.get_job_status(job).task == "until_cancelled":
                fleet.stand.next("soon")
                assert fleet.client.cancel_job(job)
                fleet.stand.next("soon cancelled")
            else:
                fleet.client.wait(job, GOES_ON_S)
        assert time.monotonic() - began < GOES_ON_S
        for direction, _, fleet, held, _ in fleets:
            assert set(Counter(each["job"] for each in fleet.ledger()).values()) == {1}
            assert fleet.client.get_job_status(held).attempts == 1
            assert fleet.client.queue_stats(direction).stale == 0
            fleet.check()


def test_a_worker_cut_off_past_its_lease_stops_its_handlers_and_works_on_when_healed(redis_url: str) -> None:
    """Also if a read of its own has just begun: that one waits on at the server, first in line, for what comes next."""
    lease_s = 1.5
    reads = threading.Semaphore(0)

    def note_reads(command: list[bytes]) -> bytes | None:
        if command[0] == b"XREADGROUP":
            reads.release()
        return None

    with ExitStack() as stack:
        wire = stack.enter_context(Wire(port_of(redis_url)))
        front = stack.enter_context(Front(port_of(wire.url)))
        fleet = stack.enter_context(Fleet(redis_url))
        front.refuse = note_reads
        cut_off = fleet.worker("--lease", str(lease_s), "--no-scheduler", url=front.url)
        tasks = {"async": "gated", "sync": "until_lost"}
        jobs = [fleet.client.schedule_job(task, args=[name]) for name, task in tasks.items()]
        first = [fleet.stand.next("async"), fleet.stand.next("sync")]
        other = fleet.worker("--lease", str(lease_s))
        forget(reads)
        assert reads.acquire(timeout=5)
        wire.cut()
        cut_at = time.monotonic()
        cancelled = fleet.stand.next("async cancelled")
        fleet.stand.next("sync lost")
        stopped_s = time.monotonic() - cut_at
        assert stopped_s < lease_s + 0.3, "not later than the lease ends"
        assert cancelled["lost"] and not cancelled["cancelled"]
        again = [fleet.stand.next("async"), fleet.stand.next("sync")]
        assert time.monotonic() - cut_at < lease_s + 1.5
        assert {visit["pid"] for visit in again} == {other.pid}
        assert all(late["fence"] > early["fence"] for early, late in zip(first, again, strict=True))
        wire.heal()
        # The plain handler has ended with a result, which comes too late now.
        until(lambda: fleet.client.queue_stats("default").stale == 1, "the late finish is counted")
        for visit in again:
            visit.say("theirs")
        assert [fleet.client.wait(job, 5) for job in jobs] == ["theirs", "theirs"]
        assert fleet.stop(other) == 0
        fresh = fleet.client.schedule_job("record")
        fleet.client.wait(fresh, 10)
        assert fleet.ledger(job=fresh)[0]["pid"] == cut_off.pid
        assert fleet.stop(cut_off) == 0
        fleet.check()


def test_a_worker_claims_nothing_until_it_has_renewed(redis_url: str) -> None:
    """Its heartbeats do not come through, while its claims would."""
    lease_s = 1.0
    heartbeat = script("attend").sha.encode()
    refused = threading.Semaphore(0)

    def refuse_heartbeats(command: list[bytes]) -> bytes | None:
        if heartbeat not in command:
            return None
        refused.release()
        return b""

    with Front(port_of(redis_url)) as front, Fleet(redis_url) as fleet:
        worker = fleet.worker("--lease", str(lease_s), "--no-scheduler", url=front.url)
        until(fleet.client.workers)
        front.refuse = refuse_heartbeats
        fleet.wait_for_line(worker, "leases can't be renewed")
        until(lambda: not fleet.client.workers(), "its lease has passed")
        job = fleet.client.schedule_job("record")
        forget(refused)
        for _ in range(2):
            assert refused.acquire(timeout=10), "it is at work, and would have the job by now"
        assert fleet.state(job) == "PENDING"
        healed_at = time.time()
        front.refuse = lambda command: None
        fleet.client.wait(job, 5)
        started_at = fleet.client.get_job_status(job).started_at
        assert started_at is not None and started_at.timestamp() >= healed_at - 0.001
        fleet.check()


async def test_what_a_last_read_brings_to_a_worker_cut_off_from_its_leases_goes_back(redis_url: str, raw: Any) -> None:
    place, link = keys.partition("rz", "default", 0), async_link(redis_url, LinkSettings())
    trusted = True

    async def no_news(_: Any) -> None:
        raise AssertionError("nothing is to be joined again")

    worker = pump.Pump(link, "w", 60_000, 10, begin=lambda *_: pytest.fail("it has claimed"), note=lambda *_: None,
                       may_claim=lambda: trusted, known=dict, rejoin=no_news, settled=lambda _: None)  # fmt: skip
    await link.execute([calls.join(place, 60.0, {})])
    worker.add(place, 1)
    async with asyncio.TaskGroup() as tasks:
        at_work = [tasks.create_task(worker.run()), tasks.create_task(worker.read_when_idle())]
        await asyncio.to_thread(until, lambda: any("b" in each["flags"] for each in raw.client_list()), "it reads")
        trusted = False
        async with AsyncClient(redis_url) as client:
            job = await client.schedule_job("t")
            await asyncio.to_thread(until, lambda: raw.hget(place.job(job), "due_at"), "it was given back")
            status = await client.get_job_status(job)
        for task in at_work:
            task.cancel()
    assert (status.state, status.attempts) == ("PENDING", 0)
    assert_one_place(redis_url)
    await worker.reads.close()
    await link.aclose()


def test_a_worker_told_to_end_ends_though_the_server_stands_still(own_server: OwnServer) -> None:
    """Each try to say farewell waits for an answer: all of them together have as long as a lease, 5 s at most."""
    server = own_server()
    with Fleet(server.url) as fleet:
        worker = fleet.worker("--lease", "2")
        fleet.client.wait(fleet.client.schedule_job("record"), GOES_ON_S)
        with server.paused():
            began = time.monotonic()
            worker.terminate()
            assert worker.wait(timeout=20) == 0
            assert time.monotonic() - began < 14
        assert "left without the server" in worker.output()


async def test_a_blocking_read_never_takes_the_answer_to_the_one_before(own_server: OwnServer,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK_S", 0.2)
    monkeypatch.setattr(reader, "GRACE_S", 0.3)
    server = own_server()
    link = async_link(server.url, LinkSettings())
    one, other = (keys.partition("rz", name, 0) for name in ("one", "other"))
    await link.execute([calls.join(place, 3.0, {}) for place in (one, other)])
    reading = reader.BlockingReader(link, "w", 3.0)
    assert await reading.read([one, other]) == []
    with server.paused(), pytest.raises(ConnectionFailed, match="no answer"):
        await reading.read([one, other])
    with Client(server.url) as client:
        client.schedule_job("t", queue="one")
        client.schedule_job("t", queue="other")
    (delivery,) = await reading.read([other])
    assert delivery.place == other
    await reading.close()
    await link.aclose()
