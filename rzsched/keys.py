"""Spell every key and channel in Redis, here and nowhere else in Python.

A partition `q.p` of a queue is the unit of everything: its keys share the hash tag `{q.p}`, so each script
runs in one slot. A job's id begins with its partition, so an id alone says where the job lives. Keys that
depend on a job (its hash, its lock, its idempotency key) are reached inside scripts by the declared prefix
`base`; `lua/lib/keys.lua` is the other half of this module.
"""

from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

PRIORITIES = range(10)
GROUP = "workers"


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """One partition of a queue; `fixed` are the keys that every script declares."""

    queue: str
    number: int
    base: str
    fixed: tuple[str, str, str, str]

    # By the base alone, whose hash Python keeps: a worker looks a partition up for every job.
    def __hash__(self) -> int:
        return hash(self.base)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Partition) and self.base == other.base)

    @property
    def name(self) -> str:
        return f"{self.queue}.{self.number}"

    @property
    def lease(self) -> str:
        return self.base + "lease"

    @property
    def wake_channel(self) -> str:
        """Carry a new earliest `nextRunAt` to the scheduler that sleeps until a later one."""
        return self.base + "wake"

    @property
    def ended_channel(self) -> str:
        """Carry the ids of watched jobs as they end."""
        return self.base + "ended"

    @property
    def gate_channel(self) -> str:
        """Tell workers that a place got free or that limits changed (OPEN), or that the queue is PAUSED."""
        return self.base + "gate"

    @property
    def ready(self) -> tuple[str, ...]:
        return tuple(f"{self.base}ready:{priority}" for priority in PRIORITIES)

    @property
    def scheduled(self) -> str:
        return self.fixed[1]

    @property
    def dead(self) -> str:
        return self.fixed[2]

    @property
    def stats(self) -> str:
        return self.fixed[3]

    @property
    def limits(self) -> str:
        """Hash of what is said of starting jobs here: paused, concurrency, rate and what goes with them."""
        return self.base + "limits"

    @property
    def running(self) -> str:
        """Sorted set of running job -> the end of its lease, kept only where concurrency is limited."""
        return self.base + "running"

    @property
    def holding(self) -> str:
        """Hash of job -> the concurrency key of which it has a slot."""
        return self.base + "holding"

    def parked(self, key: str) -> str:
        """Sorted set of the jobs that wait for a slot of a concurrency key -> when they were due."""
        return f"{self.base}parked:{key}"

    def idem(self, key: bytes) -> bytes:
        return f"{self.base}idem:".encode() + key

    def done(self, key: bytes) -> bytes:
        return f"{self.base}done:".encode() + key

    @property
    def crons(self) -> str:
        """Sorted set of schedule -> its next instant, endless for one that is paused or over."""
        return self.base + "crons"

    @property
    def schedules(self) -> str:
        """Set of the partition's schedules, by which one missing from `crons` is found."""
        return self.base + "schedules"

    def cron(self, schedule_id: str) -> str:
        return f"{self.base}cron:{schedule_id}"

    def history(self, schedule_id: str) -> str:
        """Hash of instant -> what became of it, the last ten."""
        return f"{self.base}history:{schedule_id}"

    def held(self, schedule_id: str) -> str:
        """List of the instants that wait for the end of the one before."""
        return f"{self.base}held:{schedule_id}"

    def job(self, job_id: str) -> str:
        return f"{self.base}job:{job_id}"

    def lock(self, job_id: str) -> str:
        return f"{self.base}lock:{job_id}"


@lru_cache(maxsize=4096)
def partition(namespace: str, queue: str, number: int) -> Partition:
    base = f"{namespace}:{{{queue}.{number}}}:"
    return Partition(queue, number, base, (base, base + "scheduled", base + "dead", base + "stats"))


def partition_of_key(key: str, partitions: int) -> int:
    """Give equal keys one partition, so that they meet in one slot."""
    return crc32(key.encode()) % partitions


def queues(namespace: str) -> str:
    """Hash of queue -> number of partitions, and of `queue/keyed`; see `layout`."""
    return f"{namespace}:queues"


def apps(namespace: str) -> str:
    """Set of the Apps whose schedules have been declared: one that misses here was forgotten by the server."""
    return f"{namespace}:apps"


def workers(namespace: str) -> str:
    """Sorted set of worker -> the server's ms at which it counts as gone."""
    return f"{namespace}:workers"


def worker_info(namespace: str, worker: str) -> str:
    return f"{namespace}:worker:{worker}"


def worker_channel(namespace: str, worker: str) -> str:
    """Carry the ids of running jobs that somebody asked this worker to cancel."""
    return f"{namespace}:worker:{worker}:cancel"


def schedulers(namespace: str) -> str:
    """Sorted set of scheduler -> the server's ms at which it counts as gone."""
    return f"{namespace}:schedulers"


def regroup_channel(namespace: str) -> str:
    """Tell schedulers that a queue is new, or that one of them has left."""
    return f"{namespace}:schedulers:regroup"
