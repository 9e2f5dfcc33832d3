"""Every operation of the producer API on a real server, by the plain and by the asyncio client."""

import asyncio
import pickle
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest
import redis

from rzsched import dead_letters, keys, operations
from rzsched.aio import AsyncClient
from rzsched.client import Client
from rzsched.codec import decode_payload, encode_value
from rzsched.config import ClientSettings
from rzsched.errors import (
    InvalidName,
    JobCancelled,
    JobFailed,
    JobNotFound,
    PayloadError,
    PayloadTooLarge,
)
from rzsched.job import JobId, JobOptions, JobSpec, State
from rzsched.retry import Backoff
from tests.conftest import OwnServer
from tests.producer import Face, Hand, closing_hand
from tests.states import assert_one_place


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Face]:
    face = Face(Client(redis_url) if request.param == "sync" else AsyncClient(redis_url))
    yield face
    await face.aclose()
    assert_one_place(redis_url)


@pytest.fixture
def hand(redis_url: str) -> Iterator[Hand]:
    with closing_hand(redis_url) as found:
        yield found


class ATask:
    name = "mail.send"
    job_options = JobOptions(queue="mail", priority=2, max_retries=7, expires=60, idempotency_ttl=5)


def counts(raw: Any, queue: str = "default") -> tuple[int, int]:
    place = keys.partition("rz", queue, 0)
    return int(raw.zcard(place.scheduled)), sum(int(raw.xlen(key)) for key in place.ready)


async def test_a_job_without_a_time_is_ready_at_once(client: Face, raw: Any) -> None:
    job_id = await client.schedule_job("t", args=(1, "é"), kwargs={"x": b"\x00\xff"})
    assert isinstance(job_id, JobId)
    assert job_id.created
    assert counts(raw) == (0, 1)
    status = await client.get_job_status(job_id)
    assert (status.id, status.task, status.queue, status.state) == (job_id, "t", "default", State.PENDING)
    assert (status.attempts, status.max_retries, status.priority) == (0, 3, 5)
    assert abs(status.next_run_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert decode_payload(status.payload) == ((1, "é"), {"x": b"\x00\xff"})


@pytest.mark.parametrize("when", ["run_at", "epoch", "delay", "timedelta"])
async def test_a_later_job_waits_in_the_scheduled_set_until_its_instant(client: Face, raw: Any, when: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    run_at = {"run_at": due, "epoch": due.timestamp()}.get(when)
    delay = {"delay": 3600, "timedelta": timedelta(hours=1)}.get(when)
    job_id = await client.schedule_job("t", run_at=run_at, delay=delay)
    assert counts(raw) == (1, 0)
    status = await client.get_job_status(job_id)
    assert status.state is State.PENDING
    tolerance = timedelta(milliseconds=1) if when in {"run_at", "epoch"} else timedelta(seconds=5)
    assert abs(status.next_run_at - due) <= tolerance


@pytest.mark.parametrize("said", [{"run_at": 0}, {"run_at": datetime(1999, 1, 1, tzinfo=UTC)}, {"delay": -5}])
async def test_a_job_of_the_past_is_due_now(client: Face, raw: Any, said: dict[str, Any]) -> None:
    await client.schedule_job("t", **said)
    assert counts(raw) == (0, 1)


async def test_every_option_is_kept(client: Face) -> None:
    job_id = await client.schedule_job(
        "a.b", queue="q-1", max_retries=9, backoff=Backoff(1, 2, 3, 0), priority=0, idempotency_key="k:é", timeout=1.5,
        expires=timedelta(minutes=1), retention=0, idempotency_ttl=10,
    )  # fmt: skip
    status = await client.get_job_status(job_id)
    assert (status.queue, status.max_retries, status.priority, status.idempotency_key) == ("q-1", 9, 0, "k:é")


async def test_a_task_gives_its_name_and_options_and_the_call_wins(client: Face, raw: Any) -> None:
    job_id = await client.schedule_job(ATask())
    other = await client.schedule_job(ATask(), queue="other", priority=5, expires=1)
    fields = raw.hgetall(keys.partition("rz", "mail", 0).job(job_id))
    assert (fields[b"task"], fields[b"priority"], fields[b"expires_ms"]) == (b"mail.send", b"2", b"60000")
    assert fields[b"idempotency_ttl_ms"] == b"5000"
    assert b"max_retries" not in fields, "what the worker knows of the task is not stored with each job"
    fields = raw.hgetall(keys.partition("rz", "other", 0).job(other))
    assert fields[b"expires_ms"] == b"1000"
    assert b"priority" not in fields
    assert (await client.schedule_many([JobSpec(ATask())]))[0].startswith("mail.0.")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"args": "abc"}, TypeError), ({"args": (object(),)}, PayloadError),
        ({"kwargs": {"a": "x" * (2 << 20)}}, PayloadTooLarge),
        ({"kwargs": {1: 2}}, TypeError), ({"run_at": 1, "delay": 1}, ValueError), ({"queue": "a:b"}, InvalidName),
        ({"priority": 10}, ValueError), ({"priority": True}, TypeError), ({"max_retries": -1}, ValueError),
        ({"max_retries": 1.0}, TypeError), ({"backoff": 5}, TypeError), ({"idempotency_key": ""}, InvalidName),
        ({"idempotency_key": "x" * 513}, InvalidName), ({"idempotency_ttl": 0}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"expires": -1}, ValueError), ({"retention": -1}, ValueError), ({"retention": float("nan")}, ValueError),
        ({"run_at": datetime(2030, 1, 1)}, ValueError),
    ],
)  # fmt: skip
async def test_bad_arguments_are_refused_before_anything_is_written(
    client: Face, raw: Any, said: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await client.schedule_job("t", **said)
    with pytest.raises(error):
        await client.schedule_many([JobSpec("t"), JobSpec("t", **said)])
    assert raw.dbsize() == 0


@pytest.mark.parametrize("task", [None, 5, print, "no good", "", b"t"])
async def test_what_is_no_task_is_refused(client: Face, raw: Any, task: Any) -> None:
    with pytest.raises((TypeError, InvalidName)):
        await client.schedule_job(task)
    with pytest.raises(TypeError):
        await client.schedule_many(["t"])
    assert raw.dbsize() == 0


async def test_a_key_in_use_gives_the_first_job_and_writes_nothing(client: Face, raw: Any) -> None:
    first = await client.schedule_job("t", args=(1,), idempotency_key="k")
    second = await client.schedule_job("t", args=(2,), idempotency_key="k")
    assert (first.created, second.created, second) == (True, False, first)
    assert counts(raw) == (0, 1)
    assert decode_payload((await client.get_job_status(first)).payload) == ((1,), {})


async def test_keys_of_two_queues_or_namespaces_are_strangers(client: Face, redis_url: str) -> None:
    await client.schedule_job("t", idempotency_key="k")
    assert (await client.schedule_job("t", idempotency_key="k", queue="other")).created
    with Client(redis_url, "another") as stranger:
        assert stranger.schedule_job("t", idempotency_key="k").created


async def test_equal_keys_meet_in_one_partition(client: Face, raw: Any) -> None:
    raw.hset("rz:queues", "wide", 5)
    ids = {await client.schedule_job("t", queue="wide", idempotency_key=f"k{index % 7}") for index in range(28)}
    assert len(ids) == 7
    assert len({job_id.split(".")[1] for job_id in ids}) > 1
    many = await client.schedule_many([JobSpec("t", queue="wide", idempotency_key=f"k{index}") for index in range(7)])
    assert set(many) == ids
    assert not any(job_id.created for job_id in many)


async def test_many_jobs_keep_their_order_over_chunks_queues_and_partitions(client: Face, raw: Any) -> None:
    raw.hset("rz:queues", "wide", 3)
    specs = [JobSpec("t", args=(index,), queue=("a", "wide")[index % 2]) for index in range(2101)]
    ids = await client.schedule_many(specs)
    assert len(set(ids)) == len(specs)
    for index in (0, 1, 499, 500, 501, 1000, 2099, 2100):
        status = await client.get_job_status(ids[index])
        assert status.queue == specs[index].queue
        assert decode_payload(status.payload) == ((index,), {})


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1001])
async def test_chunk_edges(client: Face, raw: Any, count: int) -> None:
    ids = await client.schedule_many([JobSpec("t") for _ in range(count)])
    assert len(set(ids)) == count
    assert counts(raw) == (0, count)
    lazily = await client.schedule_many(JobSpec("t") for _ in range(count))
    assert len({*ids, *lazily}) == 2 * count


async def test_duplicates_in_one_chunk_give_one_job(client: Face, raw: Any) -> None:
    specs = [JobSpec("t", args=(index,), idempotency_key=f"k{index % 3}") for index in range(9)]
    ids = await client.schedule_many(specs)
    assert ids == ids[:3] * 3
    assert [job_id.created for job_id in ids] == [True] * 3 + [False] * 6
    assert counts(raw) == (0, 3)
    (again,) = await client.schedule_many([JobSpec("t", idempotency_key="k1")])
    assert (again, again.created) == (ids[1], False)


async def test_a_bad_job_in_a_list_leaves_nothing_and_in_a_generator_only_whole_waves(client: Face, raw: Any) -> None:
    with pytest.raises(PayloadError):
        await client.schedule_many([*(JobSpec("t") for _ in range(1200)), JobSpec("t", args=(object(),))])
    assert raw.dbsize() == 0

    def generate() -> Iterator[JobSpec]:
        for _ in range(10_300):
            yield JobSpec("t")
        raise LookupError("the source dried up")

    with pytest.raises(LookupError):
        await client.schedule_many(generate())
    assert counts(raw) == (0, 10_000)


async def test_large_payloads_are_split_over_chunks(redis_url: str, raw: Any) -> None:
    with Client(redis_url, settings=ClientSettings(chunk_bytes=100_000)) as client:
        ids = client.schedule_many([JobSpec("t", args=("x" * 60_000, index)) for index in range(20)])
        assert [decode_payload(client.get_job_status(job_id).payload)[0][1] for job_id in ids] == list(range(20))
    commands = raw.info("commandstats")
    assert commands["cmdstat_evalsha"]["calls"] >= 20


async def test_an_id_survives_pickling(client: Face) -> None:
    first = await client.schedule_job("t", idempotency_key="k")
    again = pickle.loads(pickle.dumps(await client.schedule_job("t", idempotency_key="k")))
    assert (again, again.created) == (first, False)


async def test_a_waiting_job_is_cancelled_at_once(client: Face, raw: Any) -> None:
    ready, later = await client.schedule_job("t"), await client.schedule_job("t", delay=60)
    assert await client.cancel_job(ready)
    assert await client.cancel_job(later)
    assert counts(raw) == (0, 0)
    for job_id in (ready, later):
        assert (await client.get_job_status(job_id)).state is State.CANCELLED
        assert not await client.cancel_job(job_id), "it has ended"


async def test_a_running_job_is_asked_to_stop_and_its_worker_told(client: Face, hand: Hand, raw: Any) -> None:
    job_id = await client.schedule_job("t")
    listener = raw.pubsub()
    listener.subscribe(keys.worker_channel("rz", hand.worker))
    assert listener.get_message(timeout=5)["type"] == "subscribe"
    (run,) = hand.claim()
    assert await client.cancel_job(job_id)
    assert listener.get_message(timeout=5)["data"] == job_id.encode()
    listener.close()
    assert (await client.get_job_status(job_id)).state is State.RUNNING
    hand.end(run, "CANCELLED", "cancelled", "3600000")
    assert (await client.get_job_status(job_id)).state is State.CANCELLED


@pytest.mark.parametrize("verb", ["cancel_job", "get_job_status", "wait"])
async def test_an_unknown_id_is_not_found_and_a_malformed_one_is_refused(client: Face, verb: str) -> None:
    with pytest.raises(JobNotFound):
        await getattr(client, verb)("default.0.nothing")
    for bad in ("", "x", "a.b.c", "default.0.", "default.00.x", "q.0.a b", "*.0.x", "q.0.é"):
        with pytest.raises(InvalidName):
            await getattr(client, verb)(bad)


async def test_the_status_follows_a_job_through_its_life(client: Face, hand: Hand) -> None:
    job_id = await client.schedule_job("t", max_retries=2)
    (run,) = hand.claim()
    status = await client.get_job_status(job_id)
    assert (status.state, status.attempts, status.locked_by) == (State.RUNNING, 1, hand.worker)
    assert timedelta(0) < status.lock_expiry - datetime.now(UTC) < timedelta(seconds=61)
    assert abs(status.started_at - datetime.now(UTC)) < timedelta(seconds=5)
    hand.end(run, "RETRY", "boom", "60000")
    status = await client.get_job_status(job_id)
    assert (status.state, status.last_error, status.locked_by) == (State.FAILED, "boom", None)
    assert timedelta(seconds=50) < status.next_run_at - datetime.now(UTC) < timedelta(seconds=61)
    done = await client.schedule_job("t")
    hand.succeed(result=encode_value({"a": (1, 2)}))
    status = await client.get_job_status(done)
    assert (status.state, status.result, status.locked_by) == (State.SUCCEEDED, {"a": (1, 2)}, None)
    assert abs(status.finished_at - datetime.now(UTC)) < timedelta(seconds=5)
    dead = await client.schedule_job("t")
    hand.die(error="no use")
    status = await client.get_job_status(dead)
    assert (status.state, status.last_error, status.attempts) == (State.DEAD, "no use", 1)


async def test_a_waiter_is_woken_by_the_end_and_not_by_looking_again(client: Face, hand: Hand, raw: Any) -> None:
    job_id = await client.schedule_job("t")
    waiting = asyncio.ensure_future(client.wait(job_id, 30))
    await _until_subscribed(raw)
    begun = time.monotonic()
    await asyncio.to_thread(hand.succeed, result=encode_value("done"))
    assert await waiting == "done"
    assert time.monotonic() - begun < 2, "it looks again only after ten seconds"
    assert await client.wait(job_id, 0) == "done"


async def test_waiting_for_a_job_that_ends_badly_raises(client: Face, hand: Hand, raw: Any) -> None:
    dead = await client.schedule_job("t")
    waiting = asyncio.ensure_future(client.wait(dead))
    await _until_subscribed(raw)
    await asyncio.to_thread(hand.die, error="no use")
    with pytest.raises(JobFailed, match="no use"):
        await waiting
    gone = await client.schedule_job("t", delay=60)
    waiting = asyncio.ensure_future(client.wait(gone))
    await _until_subscribed(raw)
    await client.cancel_job(gone)
    with pytest.raises(JobCancelled):
        await waiting


async def test_waiting_ends_at_its_timeout(client: Face) -> None:
    job_id = await client.schedule_job("t")
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        await client.wait(job_id, timedelta(milliseconds=200))
    assert 0.15 < time.monotonic() - begun < 5
    with pytest.raises(ValueError, match="timeout"):
        await client.wait(job_id, float("nan"))


async def test_two_hundred_waiters_at_once(redis_url: str, hand: Hand, raw: Any) -> None:
    async with AsyncClient(redis_url) as client:
        ids = await client.schedule_many([JobSpec("t", args=(index,)) for index in range(200)])
        waits = [asyncio.ensure_future(client.wait(job_id, 30)) for job_id in ids]
        await _until_subscribed(raw, 200)
        for run in await asyncio.to_thread(hand.claim, "default", 200):
            await asyncio.to_thread(hand.end, run, "SUCCEEDED", encode_value(run.id), "3600000")
        assert await asyncio.gather(*waits) == ids


async def test_a_waiter_outlives_a_connection(client: Face, hand: Hand, raw: Any) -> None:
    job_id = await client.schedule_job("t")
    waiting = asyncio.ensure_future(client.wait(job_id, 30))
    await _until_subscribed(raw)
    raw.client_kill_filter(_type="pubsub")
    await _until_subscribed(raw)
    await asyncio.to_thread(hand.succeed)
    assert await waiting is None


async def _until_subscribed(raw: Any, count: int = 1) -> None:
    deadline = time.monotonic() + 20
    channel = keys.partition("rz", "default", 0).ended_channel
    while raw.pubsub_numsub(channel)[0][1] < count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)  # paced polling


async def test_dead_jobs_are_listed_by_pages_past_ten_thousand(redis_url: str, hand: Hand) -> None:
    with Client(redis_url) as client:
        ids = client.schedule_many([JobSpec("t") for _ in range(12_000)])
        hand.die_all("default", 12_000)
        listed: list[str] = []
        after = None
        while page := client.list_dead("default", 1000, after=after):
            listed += [job.id for job in page]
            after = page[-1].entry
        assert listed == list(ids)
        assert client.queue_stats("default").dead == 12_000


async def test_a_dead_job_says_what_it_was(client: Face, hand: Hand, raw: Any) -> None:
    job_id = await client.schedule_job("t")
    hand.die(error="é\nno use")
    by_another_hand = {"id": "", "task": "", "error": "x", "attempts": "0", b"\xff": b"\x00"}
    raw.xadd(keys.partition("rz", "default", 0).dead, by_another_hand)
    mine, foreign = await client.list_dead("default")
    assert (mine.id, mine.task, mine.queue, mine.error, mine.attempts) == (job_id, "t", "default", "é\nno use", 1)
    assert abs(mine.died_at - datetime.now(UTC)) < timedelta(seconds=5)
    assert (foreign.id, foreign.raw) == (foreign.entry, {b"\xff": b"\x00"})
    refused = await client.replay_dead("default")
    assert (refused, refused.refused) == (1, {foreign.entry: "NO_RECORD"})
    assert await client.purge_dead("default", [foreign.entry]) == 1
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="count"):
            await client.list_dead("default", bad)


async def test_replay_keeps_id_and_payload_and_starts_anew(client: Face, hand: Hand) -> None:
    job_id = await client.schedule_job("t", args=({"b": b"\x00\xff"},), priority=7)
    hand.die()
    assert await client.replay_dead("default", [job_id]) == 1
    status = await client.get_job_status(job_id)
    assert (status.state, status.attempts, status.priority, status.replays) == (State.PENDING, 0, 7, 1)
    assert await client.list_dead("default") == []
    with pytest.raises(JobNotFound):
        await client.replay_dead("default", [job_id])
    with pytest.raises(JobNotFound):
        await client.replay_dead("other", [job_id])
    with pytest.raises(TypeError):
        await client.replay_dead("default", job_id)
    assert await client.replay_dead("default", []) == 0
    assert [run.id for run in hand.claim()] == [job_id]


async def test_purge_deletes_for_good(client: Face, hand: Hand) -> None:
    ids = [await client.schedule_job("t") for _ in range(3)]
    for _ in ids:
        hand.die()
    assert await client.purge_dead("default", ids[:1]) == 1
    with pytest.raises(JobNotFound):
        await client.get_job_status(ids[0])
    assert await client.purge_dead("default") == 2
    assert await client.purge_dead("default") == 0
    assert await client.list_dead("default") == []


async def test_a_queue_is_counted(client: Face, hand: Hand) -> None:
    await client.schedule_many([JobSpec("t") for _ in range(5)])
    await client.schedule_job("t", delay=60)
    await client.schedule_job("t", queue="another")
    hand.succeed()
    hand.die()
    hand.claim()
    stats = await client.queue_stats("default")
    assert (stats.scheduled, stats.ready, stats.running, stats.dead, stats.succeeded) == (1, 2, 1, 1, 1)
    assert 0 <= stats.oldest_ready_age < 5
    assert [queue.queue for queue in await client.queues()] == ["another", "default"]
    empty = await client.queue_stats("unheard-of")
    assert (empty.ready, empty.partitions) == (0, 1)


async def test_live_workers_are_listed(client: Face, raw: Any) -> None:
    assert await client.workers() == []
    seconds, _ = raw.time()
    later, earlier = (seconds + 60) * 1000, (seconds - 60) * 1000
    raw.zadd(keys.workers("rz"), {"w1": later, "gone": earlier, "w0": later})
    told = {"host": "h", "pid": 5, "queues": ["a"], "concurrency": 9, "running": 1, "lease": 15.0}
    told["started_at_ms"] = 1000
    raw.set(keys.worker_info("rz", "w1"), msgpack.packb(told))
    bare, worker = await client.workers()
    assert (bare.id, worker.id, worker.pid, worker.queues) == ("w0", "w1", 5, ("a",))
    assert worker.started_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


async def test_a_server_that_forgot_everything_is_told_again(client: Face, raw: Any) -> None:
    await client.schedule_job("t", queue="q")
    raw.flushall()
    await client.schedule_job("t", queue="q")
    assert [queue.queue for queue in await client.queues()] == ["q"]
    raw.flushall()
    await client.schedule_many([JobSpec("t", queue="q")])
    assert [queue.queue for queue in await client.queues()] == ["q"]


def test_sixteen_threads_share_a_client(redis_url: str, raw: Any) -> None:
    with Client(redis_url) as client, ThreadPoolExecutor(16) as threads:

        def work(number: int) -> list[str]:
            ids = [client.schedule_job("t", args=(number, index)) for index in range(50)]
            for index, job_id in enumerate(ids):
                assert decode_payload(client.get_job_status(job_id).payload) == ((number, index), {})
            return list(ids)

        ids = [job_id for found in threads.map(work, range(16)) for job_id in found]
        assert len(set(ids)) == 800
    assert counts(raw) == (0, 800)


def test_two_loops_in_two_threads_share_an_async_client(redis_url: str, raw: Any) -> None:
    client = AsyncClient(redis_url)
    ids: list[str] = []

    async def work() -> None:
        ids.extend(await asyncio.gather(*(client.schedule_job("t") for _ in range(300))))
        await client.aclose()

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(ids)) == 600
    assert counts(raw) == (0, 600)


async def test_one_bad_key_fails_its_own_call_and_no_other_of_the_same_trip(redis_url: str, raw: Any) -> None:
    async with AsyncClient(redis_url) as client:
        bad, good = await client.schedule_many([JobSpec("t"), JobSpec("t")])
        raw.delete(keys.partition("rz", "default", 0).job(bad))
        raw.set(keys.partition("rz", "default", 0).job(bad), "not a hash")
        first, second, third = await asyncio.gather(
            client.get_job_status(bad), client.get_job_status(good), client.schedule_job("t"), return_exceptions=True
        )
        assert "WRONGTYPE" in str(first)
        assert not isinstance(second, BaseException) and second.id == good
        assert isinstance(third, JobId)


async def test_async_calls_of_one_turn_travel_together(redis_url: str, raw: Any) -> None:
    async with AsyncClient(redis_url) as client:
        await client.schedule_job("t")
        raw.config_resetstat()
        ids = await asyncio.gather(*(client.schedule_job("t", args=(index,)) for index in range(1000)))
        assert len(set(ids)) == 1000
        assert raw.info("commandstats")["cmdstat_evalsha"]["calls"] <= 8
        for index in (0, 499, 500, 999):
            assert decode_payload((await client.get_job_status(ids[index])).payload) == ((index,), {})


async def test_the_operations_are_the_same_for_both_clients() -> None:
    names = ("schedule_job", "schedule_many", "cancel_job", "get_job_status", "list_dead", "replay_dead", "purge_dead",
             "queue_stats", "queues", "workers")  # fmt: skip
    for name in names:
        operation = getattr(dead_letters if name.endswith("_dead") else operations, name)
        assert getattr(Client, name).__wrapped__ is getattr(AsyncClient, name).__wrapped__ is operation


def test_a_loop_that_ends_without_aclose_neither_hangs_nor_keeps_anything(
    own_server: OwnServer, run_python: Any
) -> None:
    server = own_server()
    code = """
import asyncio, gc, os, sys, warnings
warnings.simplefilter("always")
from rzsched.aio import AsyncClient
client = AsyncClient(sys.argv[1])
for _ in range(30):
    asyncio.run(client.schedule_job("t"))
gc.collect()
assert len(client._postmen) <= 2, len(client._postmen)
assert len(os.listdir("/proc/self/fd")) < 20, os.listdir("/proc/self/fd")
print("jobs", 30)
"""
    process = run_python(code, server.url)
    assert process.wait(60) == 0, process.output()
    # A ResourceWarning shows the source line in which the collector happened to run: only what was raised counts.
    for sign in ("Traceback", "Exception ignored"):
        assert sign not in process.output()
    with redis.Redis.from_url(server.url) as raw:
        assert counts(raw) == (0, 30)
