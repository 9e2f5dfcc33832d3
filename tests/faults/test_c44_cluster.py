"""C44: on a Redis Cluster a partition has all its keys in one slot; masters die, slots move, nothing is lost."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rzsched import App, Client, JobFailed, JobSpec, keys
from rzsched.calls import command, join, measure
from rzsched.connect import LinkSettings
from rzsched.errors import ConnectionFailed, InvalidName, RzschedError
from rzsched.links import sync_link
from tests.cluster_servers import Cluster
from tests.fleet import Fleet, until

PARTITIONS = 6
BRACED = ["{b}", "x{y}z", "{}", "}{"]
LEASE_S = 2.0
CALLS: list[Callable[[Client, str], Any]] = [
    lambda client, queue: client.schedule_job("t", queue=queue),
    lambda client, queue: client.schedule_many([JobSpec("t", queue=queue)]),
    lambda client, queue: client.schedule_cron("t", every=1, queue=queue),
    lambda client, queue: client.configure_queue(queue, partitions=2),
    lambda client, queue: client.pause(queue),
    lambda client, queue: client.resume(queue),
    lambda client, queue: client.list_dead(queue),
    lambda client, queue: client.replay_dead(queue),
    lambda client, queue: client.purge_dead(queue),
    lambda client, queue: client.queue_stats(queue),
    lambda client, queue: client.get_job_status(f"{queue}.0.x"),
    lambda client, queue: client.cancel_job(f"{queue}.0.x"),
]


@pytest.fixture
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    with Fleet(cluster.url) as fleet:
        fleet.client.configure_queue("default", partitions=PARTITIONS)
        yield fleet
        fleet.check()


def base_of(number: int, queue: str = "default") -> str:
    return keys.partition("rz", queue, number).base


# ---- names


@pytest.mark.parametrize("queue", BRACED)
def test_a_name_with_braces_is_refused_at_the_first_call(cluster: Cluster, queue: str) -> None:
    with Client(cluster.url) as client:
        for call in CALLS:
            with pytest.raises(InvalidName):
                call(client, queue)
    with pytest.raises(InvalidName):
        App(cluster.url).task(queue=queue)(lambda: None)
    assert [node.all_keys() for node in cluster.masters] == [[], [], []]


def test_a_worker_for_a_name_with_braces_does_not_start(cluster: Cluster, fleet: Fleet) -> None:
    worker = fleet.worker("-q", "{b}", wait=False)
    assert worker.wait(20) == 2
    assert "{b}" in worker.output()


# ---- one slot


def test_after_a_whole_life_each_partition_has_all_its_keys_in_one_slot(cluster: Cluster, fleet: Fleet) -> None:
    client = fleet.client
    victim = fleet.forker.worker(lease_s=1, concurrency=20)
    held = client.schedule_job("gated", args=("held",), concurrency_key="{k}", idempotency_key="a}b{c")
    fleet.stand.next("held")
    parked = [client.schedule_job("echo", concurrency_key="{k}") for _ in range(3)]
    until(lambda: client.queue_stats("default").parked == 3)
    ended = client.schedule_many(JobSpec("echo", args=(n,), idempotency_key=f"{{{n}}}") for n in range(30))
    dead = client.schedule_many([JobSpec("dies")] * 6)
    waiting = client.schedule_many([JobSpec("echo", delay=3600)] * 12)
    retrying = client.schedule_many([JobSpec("retries_after", args=(3600,))] * 6)
    client.schedule_cron("echo", every=0.3, id="cron.id", overlap="wait")
    client.schedule_cron("gated", every=0.5, id="held-back", overlap="wait", args=("cron",))
    fleet.stand.next("cron")
    for job in dead:
        with pytest.raises(JobFailed):
            client.wait(job, 10)
    client.replay_dead("default", dead[:3])
    client.configure_queue("default", concurrency=60, rate=(6000, 60))
    ended += client.schedule_many([JobSpec("echo", args=(n,)) for n in range(60)])
    for job in ended:
        client.wait(job, 10)
    until(lambda: client.get_cron("cron.id").fired)
    fleet.forker.kill(victim)
    fleet.forker.worker(lease_s=1, concurrency=20)
    fleet.stand.next("held").say()  # it runs again, and frees its key for those that wait
    for job in (held, *parked):
        client.wait(job, 10)
    assert {client.get_job_status(job).state for job in waiting + retrying} <= {"PENDING", "FAILED"}
    kinds = _kinds_of_keys_in_their_slots(cluster)
    assert kinds >= {"job", "ready", "scheduled", "dead", "idem", "done", "lock", "stats", "fence", "tasks", "crons",
                     "cron", "schedules", "history", "limits", "running", "started", "lease", "held"}  # fmt: skip
    client.remove_cron("held-back")
    client.remove_cron("cron.id")


def _kinds_of_keys_in_their_slots(cluster: Cluster) -> set[str]:
    kinds = set()
    for node in cluster.masters:
        for key in node.all_keys():
            tagged = re.fullmatch(rb"(rz:\{default\.\d+\}:)(\w+).*", key, re.DOTALL)
            if tagged is None:
                continue
            base, kind = tagged.groups()
            assert node.told("CLUSTER", "KEYSLOT", key) == node.told("CLUSTER", "KEYSLOT", base), key
            assert key != base  # see `cluster`: no script runs on half of a partition, since this key is never there
            kinds.add(kind.decode())
    return kinds


# ---- slots move


def test_half_moved_a_partition_stands_still_and_no_script_sees_the_half(cluster: Cluster, fleet: Fleet) -> None:
    client, place = fleet.client, keys.partition("rz", "default", 0)
    link = sync_link(cluster.url, LinkSettings(retry_s=0))
    link.execute([join(place, 15, [("t", 3)])])
    jobs = client.schedule_many([JobSpec("t", delay=60)] * 60)
    here = [job for job in jobs if job.startswith("default.0.")]
    source = cluster.owner(place.base)
    target = next(node for node in cluster.masters if node is not source)
    said: list[object] = []

    def half_way() -> None:
        said.extend(link.outcomes([measure(place), command("TYPE", place.scheduled, read=bytes)]))

    cluster.move_slot(place.base, target, half_way=half_way)
    refused, single = said
    assert isinstance(refused, ConnectionFailed) and "rehashing" in str(refused)
    assert not isinstance(single, Exception)  # one key alone is found wherever it is
    assert cluster.owner(place.base) is target
    (count,) = link.execute([measure(place)])
    assert (count.scheduled, count.dead) == (len(here), 0)
    link.close()


def test_slots_that_move_while_jobs_flow_lose_nothing(cluster: Cluster, fleet: Fleet) -> None:
    for _ in range(2):
        fleet.forker.worker(lease_s=LEASE_S * 2, concurrency=5)
    until(lambda: len(fleet.client.workers()) == 2)
    stop, jobs = threading.Event(), [str(fleet.client.schedule_job("sleeps", args=(0.01,)))]

    def produce() -> None:
        with Client(cluster.url) as client:
            while not stop.is_set():
                jobs.extend(client.schedule_many([JobSpec("sleeps", args=(0.01,))] * 10))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for number in (0, 3, 5):
            source = cluster.owner(base_of(number))
            cluster.move_slot(base_of(number), next(node for node in cluster.masters if node is not source))
            written = len(jobs)
            until(lambda: len(jobs) > written + 20)  # noqa: B023
    finally:
        stop.set()
        producer.join()
    assert len(jobs) > 50
    await_all(fleet, jobs)
    assert {each["job"] for each in fleet.ledger()} == set(jobs)


# ---- masters die


def test_a_killed_master_whose_replica_takes_over_loses_nothing(
    server_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(server_kind, folder, replicas=1) as cluster, Fleet(cluster.url) as fleet:
        fleet.client.configure_queue("default", partitions=PARTITIONS)
        workers = [fleet.forker.worker(lease_s=LEASE_S, concurrency=5) for _ in range(2)]
        jobs: list[str] = list(fleet.client.schedule_many([JobSpec("sleeps", args=(0.02,))] * 200))
        later = fleet.client.schedule_many([JobSpec("record", delay=3)] * 30)
        fleet.client.schedule_cron("echo", every=1, id="ticks")
        until(lambda: len(fleet.ledger()) > 20)
        cluster.wait_for_replicas()
        dead = cluster.owner(base_of(0))
        dead.server.kill()
        killed = time.monotonic()
        jobs += [_schedule_stubbornly(fleet.client, number) for number in range(40)]
        cluster.wait_for_failover(dead)
        taken_over = time.monotonic()
        await_all(fleet, [*jobs, *later])
        assert {each["job"] for each in fleet.ledger()} == {*jobs, *later}
        doubles = [job for job, runs in Counter(each["job"] for each in fleet.ledger()).items() if runs > 1]
        assert len(doubles) <= 40  # what ran or had just ended at the node that died
        fired = fleet.client.get_cron("ticks").fired
        until(lambda: fleet.client.get_cron("ticks").fired > fired)
        assert {worker.pid for worker in fleet.client.workers()} == set(workers)  # nobody exited
        fleet.client.remove_cron("ticks")
        began = time.monotonic()
        fleet.client.wait(fleet.client.schedule_job("echo"), 10)
        assert time.monotonic() - began < 2
        assert taken_over - killed < 20
        fleet.check()


def _schedule_stubbornly(client: Client, number: int) -> str:
    """Repeat a call by its key until it is answered, as a producer does."""
    while True:
        try:
            return client.schedule_job("sleeps", args=(0.02,), idempotency_key=f"stubborn {number}")
        except RzschedError as error:
            assert isinstance(error, ConnectionFailed), error


def await_all(fleet: Fleet, jobs: list[str], limit_s: float = 30) -> None:
    left = set(jobs)

    def all_ended() -> bool:
        left.difference_update(job for job in list(left) if fleet.state(job) == "SUCCEEDED")
        return not left

    until(all_ended, f"all end well: {sorted(left)[:5]} {fleet.client.queue_stats('default')}", limit_s)
