"""What the producer API answers beside a job's status. Instants are aware UTC datetimes, ages are seconds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgpack

from rzsched.calls import PartitionCount
from rzsched.job import instant, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadJob:
    """One entry of the dead stream. `id` is the job's, or the entry's own where no job record belongs to it;
    `raw` then holds the fields somebody put there."""

    id: str
    task: str
    queue: str
    error: str
    attempts: int
    died_at: datetime
    entry: str
    raw: dict[bytes, bytes] = field(default_factory=dict)


def read_dead(queue: str) -> Callable[[Any], list[DeadJob]]:
    def read(answer: list[tuple[bytes, list[bytes]]]) -> list[DeadJob]:
        return [_dead_job(queue, entry.decode(), values) for entry, values in answer]

    return read


def _dead_job(queue: str, entry: str, values: Any) -> DeadJob:
    pairs = list(values.items()) if isinstance(values, dict) else list(zip(values[::2], values[1::2], strict=True))
    own = {name.decode(): value.decode("utf-8", "replace") for name, value in pairs[:4]}
    died_at = instant(entry.split("-", maxsplit=1)[0])
    assert died_at is not None
    return DeadJob(id=own["id"] or entry, task=own["task"], queue=queue, error=own["error"],
                   attempts=whole(own["attempts"], 0), died_at=died_at, entry=entry, raw=dict(pairs[4:]))


class Refusals(int):
    """How many dead jobs a replay or purge took; `refused` says which not, and why (or whose the key is now)."""

    refused: dict[str, str]

    @classmethod
    def empty(cls) -> "Refusals":
        return cls._of(0, {})

    @classmethod
    def _of(cls, count: int, refused: dict[str, str]) -> "Refusals":
        self = cls(count)
        self.refused = refused
        return self

    def plus(self, results: Iterable[tuple[str, str]]) -> "Refusals":
        refused = {job_id: what for job_id, what in results if what != "OK"}
        taken = sum(1 for _, what in results if what == "OK")
        return self._of(int(self) + taken, self.refused | refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """A queue at one instant. `succeeded` and `failed` count since the queue was made; `failed` counts attempts.

    `scheduled` holds retries too. `oldest_ready_age` is the seconds that the job longest ready has waited, or the one
    longest due where nobody has moved it yet. `parked` jobs wait for others of their concurrency key.
    `concurrency` and `rate` (jobs, seconds) are its limits. `stale` counts finishes refused because another run had
    taken over, `late` those taken after the lease ran out, `recovered` the runs taken back from dead workers.
    """

    queue: str
    partitions: int
    scheduled: int
    ready: int
    running: int
    dead: int
    succeeded: int
    failed: int
    cancelled: int
    recovered: int
    stale: int
    late: int
    oldest_ready_age: float
    parked: int = 0
    paused: bool = False
    concurrency: int | None = None
    rate: tuple[int, float] | None = None


def read_stats(queue: str, counts: list[PartitionCount]) -> QueueStats:
    def total(counter: str) -> int:
        return sum(count.counters.get(counter, 0) for count in counts)

    def limit(name: str) -> int | None:
        return sum(count.limits.get(name, 0) for count in counts) or None

    return QueueStats(
        queue=queue,
        partitions=len(counts),
        scheduled=sum(count.scheduled for count in counts),
        ready=sum(count.ready for count in counts),
        running=sum(count.running for count in counts),
        dead=sum(count.dead for count in counts),
        succeeded=total("succeeded"),
        failed=total("failed") + total("dead"),
        cancelled=total("cancelled"),
        recovered=total("recovered"),
        stale=total("stale"),
        late=total("late"),
        parked=total("parked"),
        paused=any("paused" in count.limits for count in counts),
        concurrency=limit("concurrency"),
        rate=None if (jobs := limit("rate")) is None else (jobs, counts[0].limits.get("rate_ms", 0) / 1000),
        oldest_ready_age=max(count.oldest_ready_age_ms for count in counts) / 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """A worker process that is alive, as it described itself at its last heartbeat."""

    id: str
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    concurrency: int = 0
    running: int = 0
    lease: float = 0.0
    started_at: datetime | None = None


def read_worker(worker: str) -> Callable[[Any], WorkerInfo]:
    def read(answer: bytes | None) -> WorkerInfo:
        if answer is None:
            return WorkerInfo(id=worker)
        told = msgpack.unpackb(answer)
        return WorkerInfo(id=worker, host=told["host"], pid=told["pid"], queues=tuple(told["queues"]),
                          concurrency=told["concurrency"], running=told["running"], lease=told["lease"],
                          started_at=instant(told["started_at_ms"]))

    return read
