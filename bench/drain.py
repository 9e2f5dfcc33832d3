"""Drain jobs by one worker process; shared by the measurements that ask how fast."""

import statistics
import time
from dataclasses import dataclass

from bench import figures
from bench.common import Figures
from bench.figures import CommandStat, Target
from bench.fleet import wait_until_joined, workers
from bench.server import Server
from rzsched import Client, JobId, JobSpec, keys

PLACE = keys.partition("rz", "default", 0)
STATS = PLACE.stats
POLL_S = 0.05
PATIENCE_S = 120.0
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Drain:
    """One drain. `seconds` is from the first claim (or the due instant) to the last finish, as Redis holds them."""

    jobs: int
    seconds: float
    stats: dict[str, CommandStat]

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    def figures(self) -> Figures:
        usec = figures.usec_in_all(self.stats) / self.jobs
        # HMGET reads the limits: once in each call that settles or claims, and once in each sweep of the scheduler.
        trips = self.stats["hmget"].calls
        # SET is used once a job, for its lock, once a claim, for the counter of fences, and once a promotion, for its
        # lease; PEXPIRE once a job, for its retention, and once a promotion.
        batches = self.stats["set"].calls - self.stats["pexpire"].calls
        return {
            "jobs_per_s": self.rate,
            "server_us_per_job": usec,
            "ceiling_jobs_per_s": 1_000_000 / usec,
            "ratio_to_ceiling": self.rate * usec / 1_000_000,
            "server_commands_per_job": figures.calls_in_all(self.stats) / self.jobs,
            "round_trips_per_batch": trips / batches,
            "jobs_per_batch": self.jobs / batches,
        }


def enqueue(server: Server, task: str, count: int, run_at: float | None = None) -> list[JobId]:
    """Empty the server, then write the jobs."""
    server.redis.flushall()
    with Client(server.url) as client:
        return client.schedule_many(JobSpec(task, run_at=run_at) for _ in range(count))


def drain(server: Server, task: str, count: int) -> Drain:
    """Enqueue, then start one worker with default settings and let it work until nothing is left."""
    ids = enqueue(server, task, count)
    server.redis.config_resetstat()
    with workers(server):
        stats = _await_finished(server, count)
    starts, ends = instants(server, ids)
    return Drain(count, (max(ends) - min(starts)) / 1000, stats)


def drain_herd(server: Server, task: str, count: int, lead_s: float) -> Drain:
    """Write jobs that are due in one instant, and let an idle worker meet them; timed from that instant."""
    due_ms = int((time.time() + lead_s) * 1000)
    ids = enqueue(server, task, count, due_ms / 1000)
    with workers(server):
        wait_until_joined(server)
        if time.time() * 1000 > due_ms - 500:
            raise RuntimeError(f"the jobs were due before all was ready: {lead_s} s of lead are too few here")
        server.redis.config_resetstat()
        stats = _await_finished(server, count)
    starts, ends = instants(server, ids)
    if min(starts) < due_ms:
        raise RuntimeError("a job ran before it was due")
    return Drain(count, (max(ends) - due_ms) / 1000, stats)


def _await_finished(server: Server, count: int) -> dict[str, CommandStat]:
    """Look now and then; give the server's statistics at the end, less the looks."""
    deadline, looks = time.monotonic() + PATIENCE_S, 0
    while True:
        looks += 1
        finished = int(server.redis.hget(STATS, "succeeded") or 0)
        if finished >= count:
            stats = figures.read_command_stats(server.redis.info("commandstats"))
            return figures.without(stats, "hget", looks)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{finished} of {count} jobs finished in {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def instants(server: Server, ids: list[JobId]) -> tuple[list[int], list[int]]:
    """Read when each job started and finished, in the server's ms."""
    starts, ends = [], []
    for first in range(0, len(ids), PAGE):
        pipeline = server.redis.pipeline(transaction=False)
        for job_id in ids[first : first + PAGE]:
            pipeline.hmget(PLACE.job(job_id), "started_at", "finished_at")
        for start, end in pipeline.execute():
            starts.append(int(start))
            ends.append(int(end))
    return starts, ends


def medians(rounds: list[Figures]) -> Figures:
    """Give the median of each figure over the rounds."""
    return {name: statistics.median(figure[name] for figure in rounds) for name in rounds[0]}


def measure(server: Server, task: str, jobs: int, rounds: int) -> Figures:
    """Drain several times; medians, and the ratio of each round for who wants to see the spread."""
    every = [drain(server, task, jobs).figures() for _ in range(rounds)]
    return {**medians(every), "ratio_of_each_round": [figure["ratio_to_ceiling"] for figure in every]}


def targets(ratio: float) -> list[Target]:
    return [
        Target("ratio_to_ceiling", ratio, at_least=True),
        Target("server_commands_per_job", 12),
        Target("round_trips_per_batch", 1.1),
    ]
