"""Every single step against Redis as a value: the script, its keys and arguments, and how to read the answer.

Nothing here does I/O: `connect` runs a call over a sync or an async connection, so no step is written twice.
A call that is `repeatable` has the same effect when it is sent again after an answer was lost.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rzsched.job import JobId, JobStatus, Prepared, read_status, whole
from rzsched.keys import Partition
from rzsched.names import new_job_ids
from rzsched.scripts import script

T = TypeVar("T")
Argument = str | bytes | int
ANYWHERE = ""
"""The route of a step that any node of a cluster may run."""


@dataclass(slots=True, frozen=True)
class Call(Generic[T]):
    """One script on one partition, or one plain command where `script` is ''.

    `route` says which node of a cluster runs it: a key or a slot that the node owns, or ANYWHERE. Where it is None the
    first key says so, and the first argument of a plain command.
    """

    script: str
    keys: Sequence[str]
    args: Sequence[Argument]
    read: Callable[[Any], T]
    repeatable: bool = True
    route: Argument | None = None

    @property
    def routed_by(self) -> Argument:
        if self.route is not None:
            return self.route
        if self.keys:
            return self.keys[0]
        return self.args[1] if len(self.args) > 1 else ANYWHERE

    def command(self) -> tuple[Argument, ...]:
        if not self.script:
            return tuple(self.args)
        return ("EVALSHA", script(self.script).sha, len(self.keys), *self.keys, *self.args)


@dataclass(slots=True, frozen=True)
class Enqueued:
    """`fresh`: the partition had no history, so its queue may be missing from the registry."""

    ids: list[JobId]
    fresh: bool


@dataclass(slots=True, frozen=True)
class Enqueue:
    """Write jobs into one partition: those for the same one may be joined and travel as one call.

    `client_ms` is when the ids were made, by the client's clock; the script stores the server's time where they differ.
    """

    partition: Partition
    jobs: list[Prepared]
    ids: list[str]
    client_ms: int
    now_ms: str = ""

    def call(self) -> Call[Enqueued]:
        args: list[Argument] = [self.now_ms, self.client_ms, len(self.ids)]
        for job_id, job in zip(self.ids, self.jobs, strict=True):
            args += (job_id, *job[:5], len(job.more), *job.more)
        return Call("enqueue", self.partition.fixed, args, self._read)

    def _read(self, answer: list[bytes]) -> Enqueued:
        ids = [JobId(job_id) for job_id in self.ids]
        for index, holder in zip(answer[2::2], answer[3::2], strict=True):
            ids[int(index)] = JobId(holder.decode(), created=False)
        return Enqueued(ids, answer[1] == b"1")


def enqueue(place: Partition, jobs: list[Prepared], now_ms: str = "") -> Enqueue:
    client_ms = time.time_ns() // 1_000_000
    return Enqueue(place, jobs, new_job_ids(place.queue, place.number, len(jobs), client_ms), client_ms, now_ms)


def command(*args: Argument, read: Callable[[Any], T], repeatable: bool = True,
            route: Argument | None = None) -> Call[T]:
    return Call("", (), args, read, repeatable, route)


def publish(channel: str, word: Argument) -> Call[int]:
    """Tell the listeners of a channel; in a cluster every node passes it on to all others."""
    return command("PUBLISH", channel, word, read=int, route=ANYWHERE)


def server_ms(route: Argument = ANYWHERE) -> Call[int]:
    """Ask for the time, in ms, of the server that holds a key, or of any."""
    return command("TIME", read=lambda answer: int(answer[0]) * 1000 + int(answer[1]) // 1000, route=route)


def _first(answer: list[bytes]) -> str:
    return answer[0].decode()


def inspect(place: Partition, job_id: str, now_ms: str = "") -> Call[JobStatus | None]:
    def read(answer: list[Any]) -> JobStatus | None:
        return read_status(job_id, answer[1:]) if answer[0] == b"FOUND" else None

    return Call("inspect", place.fixed, (now_ms, job_id), read)


def cancel(place: Partition, job_id: str, now_ms: str = "") -> Call[tuple[str, str]]:
    """Answer the status, and the worker to be told where it is REQUESTED."""

    def read(answer: list[bytes]) -> tuple[str, str]:
        return answer[0].decode(), answer[1].decode() if len(answer) > 1 else ""

    return Call("cancel", place.fixed, (now_ms, job_id), read, repeatable=False)


def watch(place: Partition, job_id: str, for_s: float) -> Call[str]:
    return Call("watch", place.fixed, ("", job_id, int(for_s * 1000)), _first)


@dataclass(frozen=True, slots=True)
class Page:
    """What a pass over dead jobs answers: `last` is '' at the end, `results` pairs of id and what became of it."""

    last: str
    results: list[tuple[str, str]]


def _read_page(answer: list[bytes]) -> Page:
    words = [value.decode("utf-8", "replace") for value in answer[1:]]
    return Page(words[0], list(zip(words[1::2], words[2::2], strict=True)))


def over_dead(verb: str, place: Partition, *, after: str = "-", to: str = "+", limit: int = 500,
              ids: Sequence[str] = (), now_ms: str = "") -> Call[Page]:
    """Replay or purge dead jobs: those named, else one page of the dead stream."""
    return Call(verb, place.fixed, (now_ms, after, to, limit, len(ids), *ids), _read_page)


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """A partition at one instant. `due_in_ms`: until the first scheduled job is due, negative where it is late."""

    scheduled: int
    ready: int
    running: int
    dead: int
    oldest_ready_age_ms: int
    counters: dict[str, int]
    limits: dict[str, int] = field(default_factory=dict)
    due_in_ms: int | None = None


def _numbers(flat: list[bytes]) -> dict[str, int]:
    return {
        name.decode("utf-8", "replace"): whole(value, 0) for name, value in zip(flat[::2], flat[1::2], strict=True)
    }


def measure(place: Partition, now_ms: str = "") -> Call[PartitionCount]:
    def read(answer: list[Any]) -> PartitionCount:
        scheduled, ready, running, dead, age_ms = map(int, answer[1:6])
        counters, limits = _numbers(answer[6]), _numbers(answer[7])
        due_in_ms = int(answer[8]) if answer[8] else None
        return PartitionCount(scheduled, ready, running, dead, age_ms, counters, limits, due_in_ms)

    return Call("measure", place.fixed, (now_ms,), read)


@dataclass(frozen=True, slots=True)
class Attendance:
    now_ms: int
    ids: list[str]


def attend(registry: str, who: str = "", ttl_s: float = 0, now_ms: str = "") -> Call[Attendance]:
    """Say that `who` is alive for `ttl_s` (0: it leaves; '': only look), and learn who else is."""

    def read(answer: list[bytes]) -> Attendance:
        return Attendance(int(answer[1]), [value.decode() for value in answer[2:]])

    return Call("attend", (registry,), (now_ms, who, int(ttl_s * 1000)), read)


def join(place: Partition, lease_s: float, tasks: Iterable[tuple[str, int]], now_ms: str = "") -> Call[str]:
    flat = [word for task in tasks for word in task]
    return Call("join", place.fixed, (now_ms, int(lease_s * 1000), len(flat) // 2, *flat), _first)


@dataclass(frozen=True, slots=True)
class Promotion:
    """`held_by`: another scheduler has the lease, for `held_ms` more. Times are the server's.

    Where as many were moved as should be: `unread` ready ones were delivered to nobody yet, and so many are `left`
    that are due, None where the jobs here differ in priority.
    """

    count: int = 0
    next_run_at_ms: int | None = None
    now_us: int = 0
    held_by: str = ""
    held_ms: int = 0
    next_fire_ms: int | None = None
    unread: int = 0
    left: int | None = 0


def _score_ms(score: bytes) -> int | None:
    """Read a score; a schedule that waits for nothing has an endless one."""
    return int(float(score)) if score and score != b"inf" else None


def _read_promotion(answer: list[bytes]) -> Promotion:
    if answer[0] == b"HELD":
        return Promotion(held_by=answer[1].decode(), held_ms=int(answer[2]))
    return Promotion(int(answer[1]), _score_ms(answer[2]), int(answer[3]), next_fire_ms=_score_ms(answer[4]),
                     unread=int(answer[5]), left=int(answer[6]) if answer[6] else None)


def promote(place: Partition, owner: str, lease_s: float, limit: int, now_ms: str = "") -> Call[Promotion]:
    args = (now_ms, owner, int(lease_s * 1000), limit)
    return Call("promote", (*place.fixed, place.lease), args, _read_promotion)


def resign(place: Partition, owner: str) -> Call[str]:
    return Call("resign", (*place.fixed, place.lease), ("", owner), _first)


@dataclass(frozen=True, slots=True)
class Recovered:
    id: str
    what: str
    worker: str


def recover(place: Partition, *, worker: str = "", idle_s: float = 0, limit: int = 200,
            default_max_retries: int = 3, now_ms: str = "") -> Call[list[Recovered]]:
    def read(answer: list[bytes]) -> list[Recovered]:
        words = [value.decode("utf-8", "replace") for value in answer[1:]]
        return [Recovered(*three) for three in zip(words[::3], words[1::3], words[2::3], strict=True)]

    args = (now_ms, worker, int(idle_s * 1000), limit, default_max_retries)
    return Call("recover", place.fixed, args, read)


def prune(place: Partition, consumer_idle_s: float, dead_limit: int, now_ms: str = "") -> Call[tuple[int, int]]:
    """Answer how many idle consumers and how many graves over the limit went."""

    def read(answer: list[bytes]) -> tuple[int, int]:
        return int(answer[1]), int(answer[2])

    return Call("prune", place.fixed, (now_ms, int(consumer_idle_s * 1000), dead_limit, 200), read)


@dataclass(slots=True)
class Claimed:
    """One run as it came from the server: `entry` is `priority/stream id`, `flat` the job's hash as it was before."""

    entry: str
    id: str
    fence: str
    attempt: int
    flat: list[bytes]


def read_claimed(rows: list[list[Any]]) -> list[Claimed]:
    return [
        Claimed(entry.decode(), job_id.decode("utf-8", "replace"), fence.decode(), int(attempt), flat)
        for entry, job_id, fence, attempt, flat in rows
    ]


class Claims(list[Claimed]):
    """What a call claimed; `gate` says why there are no more ('' there were none), worth another look in `look_s`."""
    gate = ""
    look_s = 0.0


def read_claims(answer: list[Any]) -> Claims:
    claims = Claims(read_claimed(answer[2:]))
    if answer[0]:
        claims.gate, claims.look_s = answer[0].decode(), int(answer[1]) / 1000
    return claims


def claim(place: Partition, worker: str, lease_ms: int, limit: int, turn: str,
          delivered: Sequence[str] = (), now_ms: str = "") -> Call[Claims]:
    args: list[Argument] = [now_ms, worker, lease_ms, limit, turn, len(delivered), *delivered]
    return Call("claim", place.fixed, args, lambda answer: read_claims(answer[1:]), repeatable=False)


def promote_claim(place: Partition, owner: str, lease_s: float, limit: int, worker: str, run_lease_ms: int, most: int,
                  now_ms: str = "") -> Call[tuple[Promotion, Claims]]:
    """Promote, and claim at most so many of the due jobs for a worker."""

    def read(answer: list[Any]) -> tuple[Promotion, Claims]:
        return _read_promotion(answer), Claims() if answer[0] == b"HELD" else read_claims(answer[7:])

    args = (now_ms, owner, int(lease_s * 1000), limit, worker, run_lease_ms, most)
    return Call("promote_claim", (*place.fixed, place.lease), args, read, repeatable=False)


@dataclass(slots=True, frozen=True)
class Finished:
    """`notes`: what was not plainly settled, by job id; `claimed`: the next runs."""

    notes: dict[str, str]
    claimed: Claims


Outcome = tuple[str, str, str, str, str | bytes, str, str]
"""outcome, id, fence, entry, and a, b, c as `finish.lua` says."""


def finish(place: Partition, worker: str, lease_ms: int, limit: int, turn: str, outcomes: Sequence[Outcome],
           now_ms: str = "") -> Call[Finished]:
    args: list[Argument] = [now_ms, worker, lease_ms, limit, turn, len(outcomes)]
    for outcome in outcomes:
        args += outcome

    def read(answer: list[Any]) -> Finished:
        words = [value.decode() for value in answer[1]] if answer[1] else []
        return Finished(dict(zip(words[::2], words[1::2], strict=True)), read_claims(answer[2:]))

    return Call("finish", place.fixed, args, read, repeatable=False)


def renew(place: Partition, worker: str, lease_ms: int, runs: Sequence[tuple[str, str, str, str]],
          now_ms: str = "") -> Call[dict[str, str]]:
    """Renew runs given as (id, fence, entry, progress); answer what is LOST or to be CANCELLED, by fence."""
    flat = [word for run in runs for word in run]

    def read(answer: list[bytes]) -> dict[str, str]:
        words = [value.decode() for value in answer[1:]]
        return dict(zip(words[::2], words[1::2], strict=True))

    return Call("renew", place.fixed, (now_ms, worker, lease_ms, len(runs), *flat), read)


def release(place: Partition, worker: str, kept: Sequence[str] = (), *, leave: bool = False,
            now_ms: str = "") -> Call[list[str]]:
    """Hand back all that `worker` holds but the runs with the fences `kept`; answer the ids."""

    def read(answer: list[bytes]) -> list[str]:
        return [value.decode("utf-8", "replace") for value in answer[1:]]

    return Call("release", place.fixed, (now_ms, worker, int(leave), len(kept), *kept), read)
