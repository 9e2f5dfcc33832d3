"""What does a cluster cost? One worker process drains a queue spread over three masters, and one that is not."""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import drain
from bench.common import Figures, answer, parser
from bench.figures import Target
from bench.fleet import workers
from bench.server import Server
from rzsched import Client, JobId, JobSpec, keys
from rzsched.calls import command
from rzsched.connect import LinkSettings
from rzsched.links import sync_link
from rzsched.topology import slot_of

QUESTION = "What share of a single server's drain does a cluster of three masters on the same machine reach?"
TASK = "nothing"
MASTERS = 3
SLOTS = 16384
PAGE = 1000
PATIENCE_S = 120.0
TARGETS = [Target("ratio", 0.60, at_least=True)]


class Cluster:
    """Masters that share the slots evenly; it has what the measurement's workers need of a server."""

    def __init__(self, kind: str, nodes: list[Server]) -> None:
        self.kind = kind
        self.nodes = nodes
        self.folder: Path = nodes[0].folder
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{_port(node)}" for node in nodes)

    def form(self) -> None:
        for number, node in enumerate(self.nodes):
            first, end = (SLOTS * each // len(self.nodes) for each in (number, number + 1))
            node.redis.execute_command("CLUSTER", "ADDSLOTS", *range(first, end))
            node.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", _port(self.nodes[0]))
        deadline = time.monotonic() + PATIENCE_S
        while not all(self._is_whole(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster does not come together")
            time.sleep(0.05)

    def _is_whole(self, node: Server) -> bool:
        told = node.redis.execute_command("CLUSTER", "INFO")
        known = f"cluster_known_nodes:{len(self.nodes)}".encode()
        return b"cluster_state:ok" in told and known in told and b"cluster_slots_ok:16384" in told

    def partitions(self) -> int:
        """Give the smallest number of partitions that puts as many on each master."""
        for count in range(MASTERS, 10 * MASTERS, MASTERS):
            owners = [slot_of(keys.partition("rz", "default", number).base) * MASTERS // SLOTS
                      for number in range(count)]  # fmt: skip
            if len({owners.count(master) for master in range(MASTERS)}) == 1:
                return count
        return 2 * MASTERS


def _port(node: Server) -> int:
    return int(node.redis.connection_pool.connection_kwargs["port"])


@contextmanager
def clusters(kind: str) -> Iterator[Cluster]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(Server(kind, **{"cluster-enabled": "yes"})) for _ in range(MASTERS)]
        cluster = Cluster(kind, nodes)
        cluster.form()
        yield cluster


def drain_cluster(cluster: Cluster, count: int) -> float:
    """Enqueue, then start one worker with default settings; give the jobs a second, from first claim to last finish."""
    for node in cluster.nodes:
        node.redis.flushall()
    with Client(cluster.url) as client:
        client.configure_queue("default", partitions=cluster.partitions())
        ids = client.schedule_many(JobSpec(TASK) for _ in range(count))
        with workers(cluster):
            deadline = time.monotonic() + PATIENCE_S
            while client.queue_stats("default").succeeded < count:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{count} jobs are not finished in {PATIENCE_S:g} s")
                time.sleep(drain.POLL_S)
    starts, ends = _instants(cluster, ids)
    return count / ((max(ends) - min(starts)) / 1000)


def _instants(cluster: Cluster, ids: list[JobId]) -> tuple[list[int], list[int]]:
    link = sync_link(cluster.url, LinkSettings(command_timeout_s=60))
    told: list[Any] = []
    for first in range(0, len(ids), PAGE):
        told += link.execute([
            command("HMGET", _place(job_id).job(job_id), "started_at", "finished_at", read=list)
            for job_id in ids[first : first + PAGE]
        ])  # fmt: skip
    link.close()
    return [int(start) for start, _ in told], [int(end) for _, end in told]


def _place(job_id: str) -> keys.Partition:
    queue, number, _ = job_id.split(".")
    return keys.partition("rz", queue, int(number))


def measure(server: Server, kind: str, jobs: int, rounds: int) -> Figures:
    """Drain by turns, so that a busy moment of the machine meets both."""
    alone, spread = [], []
    with clusters(kind) as cluster:
        for _ in range(rounds):
            alone.append(drain.drain(server, TASK, jobs).rate)
            spread.append(drain_cluster(cluster, jobs))
        partitions = cluster.partitions()
    ratios = [each / other for each, other in zip(spread, alone, strict=True)]
    return {
        "single_jobs_per_s": statistics.median(alone), "cluster_jobs_per_s": statistics.median(spread),
        "ratio": statistics.median(ratios), "ratio_of_each_round": ratios, "partitions": partitions,
    }  # fmt: skip


def main() -> None:
    options = parser(QUESTION, rounds=3)
    options.add_argument("--jobs", type=int, default=50_000)
    chosen = options.parse_args()
    measured = f"{chosen.jobs} jobs each, first claim to last finish, {MASTERS} masters, median of {chosen.rounds}"
    answer(chosen, QUESTION, measured, TARGETS,
           lambda server: measure(server, chosen.server, chosen.jobs, chosen.rounds))


if __name__ == "__main__":
    main()
