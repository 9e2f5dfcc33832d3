"""No caller ever reads another's reply: not after cancelled calls, not after a fork."""

import asyncio
import os
import random
import struct
from typing import Any

import redis

from rzsched import keys
from rzsched.aio import AsyncClient
from rzsched.client import Client
from rzsched.codec import decode_payload
from rzsched.job import JobSpec
from tests.producer import Front, port_of
from tests.states import assert_one_place

PLACE = keys.partition("rz", "default", 0)
CHILDREN, JOBS_EACH = 50, 20


async def test_cancelled_calls_leave_no_reply_to_others(redis_url: str, raw: Any) -> None:
    rng = random.Random(46)
    with Front(port_of(redis_url), 0.05) as front:
        async with AsyncClient(front.url) as client:
            known = dict(enumerate(await client.schedule_many([JobSpec("t", args=(f"known {i}",)) for i in range(50)])))
            loop = asyncio.get_running_loop()
            doomed, kept = [], []

            async def schedule(number: int) -> None:
                job_id = await client.schedule_job("t", args=(number,))
                status = await client.get_job_status(job_id)
                assert (status.id, decode_payload(status.payload)) == (job_id, ((number,), {}))

            async def read(number: int) -> None:
                status = await client.get_job_status(known[number % 50])
                assert (status.id, decode_payload(status.payload)[0]) == (known[number % 50], (f"known {number % 50}",))

            for number in range(1000):
                work = (schedule if number % 4 < 2 else read)(number)
                task = asyncio.ensure_future(work)
                if number % 2:
                    doomed.append(task)
                    loop.call_later(rng.random() / 10, task.cancel)
                else:
                    kept.append(task)
                if number % 10 == 0:
                    await asyncio.wait([task], timeout=0.002)  # spread over many trips
            await asyncio.gather(*kept)
            ends = await asyncio.gather(*doomed, return_exceptions=True)
            assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends), ends
            assert any(isinstance(end, asyncio.CancelledError) for end in ends)
            open_now = front.connections
            assert open_now <= 5
            await asyncio.gather(*(read(number) for number in range(200)))
            assert front.connections <= max(open_now, 4)
    entries = [fields[b"id"] for _, fields in raw.xrange(PLACE.ready[5])]
    assert len(entries) == len(set(entries))
    assert 50 + 250 <= len(entries) <= 50 + 500, "a cancelled call made one job or none"
    assert_one_place(redis_url)


async def test_a_cancelled_wait_leaves_nothing_behind(redis_url: str, raw: Any) -> None:
    async with AsyncClient(redis_url) as client:
        job_id = await client.schedule_job("t")
        before = int(raw.info("clients")["connected_clients"])
        for index in range(60):
            waiting = asyncio.ensure_future(client.wait(job_id))
            await asyncio.wait([waiting], timeout=index / 10_000)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert (await client.get_job_status(job_id)).id == job_id
        assert int(raw.info("clients")["connected_clients"]) <= before + 5


def test_forked_children_and_their_parent_share_no_socket(redis_url: str, raw: Any) -> None:
    client = Client(redis_url)
    mine = [client.schedule_job("t", args=(os.getpid(), index)) for index in range(5)]
    reader, writer = os.pipe()
    children = [_fork(client, writer) for _ in range(CHILDREN)]
    for index in range(200):
        job_id = client.schedule_job("t", args=(os.getpid(), index))
        assert decode_payload(client.get_job_status(job_id).payload)[0] == (os.getpid(), index)
        mine.append(job_id)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * CHILDREN
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        done = sum(struct.unpack("i", word)[0] for word in iter(lambda: pipe.read(4), b""))
    assert done == CHILDREN * JOBS_EACH
    ids = [fields[b"id"].decode() for _, fields in raw.xrange(PLACE.ready[5])]
    assert len(ids) == len(set(ids)) == CHILDREN * JOBS_EACH + len(mine)
    assert set(mine) <= set(ids)
    assert client.get_job_status(mine[0]).id == mine[0]
    client.close()
    assert_one_place(redis_url)


def _fork(client: Client, writer: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        good = 0
        for index in range(JOBS_EACH):
            job_id = client.schedule_job("t", args=(os.getpid(), index))
            good += decode_payload(client.get_job_status(job_id).payload)[0] == (os.getpid(), index)
        os.write(writer, struct.pack("i", good))
        os._exit(0)
    except BaseException:
        os._exit(1)


def test_the_pool_of_a_busy_client_stays_as_it_is(redis_url: str, raw: Any) -> None:
    with Client(redis_url) as client:
        for _ in range(500):
            client.schedule_job("t")
        assert _connections(raw) <= 3
    assert isinstance(raw, redis.Redis)


def _connections(raw: Any) -> int:
    return int(raw.info("clients")["connected_clients"])
