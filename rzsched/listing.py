"""List the jobs of a queue by state, as a plan (see `operations`).

The structures that hold live jobs are read a page at a time: nothing blocks the server, and what moves meanwhile may be
missed or seen in its old place. Jobs that ended well are in no index, which is cheap: a bounded SCAN finds them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rzsched import calls
from rzsched.answers import DeadJob, read_dead
from rzsched.calls import Call
from rzsched.errors import JobNotFound
from rzsched.job import DEFAULT_PRIORITY, State, instant, whole
from rzsched.keys import GROUP, Partition
from rzsched.names import check_queue, job_id_ms
from rzsched.space import Plan, Space, partitions_of

PAGE = 500
SCAN_PAGE = 1000
SCAN_KEYS = 1_000_000
"""How many keys a listing by SCAN looks at in each partition before it gives up."""
_FAR = datetime.max.replace(tzinfo=UTC)
_FIELDS = ("task", "state", "attempts", "priority", "last_error", "created_at", "started_at", "finished_at", "due_at",
           "entry")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """One job of a listing; instants are aware UTC datetimes. `worker` runs it, `next_run_at` is when it was due."""

    id: str
    task: str
    queue: str
    state: State
    attempts: int
    priority: int
    next_run_at: datetime | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    worker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """`complete` is False where a search by SCAN ended at its bound, so that there may be more."""

    jobs: list[ListedJob] = field(default_factory=list)
    complete: bool = True


def list_jobs(space: Space, queue: str, state: State, count: int = 100) -> Plan[Listing]:
    """List at most `count` jobs of a queue in one state: the next due first, or the newest where they ended."""
    check_queue(queue)
    state = State(state)
    if type(count) is not int or count < 1:
        raise ValueError(f"count must be an int of at least 1, not {count!r}")
    places = yield from partitions_of(space, queue)
    jobs: list[ListedJob] = []
    complete = True
    for place in places:
        if state is State.DEAD:
            jobs += yield from _dead(place, count)
        elif state is State.RUNNING:
            jobs += yield from _running(place, count)
        elif state in {State.PENDING, State.FAILED}:
            jobs += yield from _waiting(place, state, count)
        else:
            found, whole = yield from _ended(place, state, count)
            jobs, complete = jobs + found, complete and whole
    return Listing(jobs=sorted(jobs, key=_ORDER[state])[:count], complete=complete)


def find_dead(space: Space, queue: str, job_id: str) -> Plan[DeadJob]:
    """Find one entry of the dead stream, by job id or (an entry without a job) by stream id; or raise JobNotFound."""
    check_queue(queue)
    if job_id.replace("-", "", 1).isdecimal() and job_id.isascii():
        places = yield from partitions_of(space, queue)
        asked = [(place, job_id) for place in places]
    else:
        place = space.place_of(job_id)
        (entry,) = yield [_on(place, "HGET", place.job(job_id), "entry", read=lambda value: (value or b"").decode())]
        if place.queue != queue or not entry.startswith("dead/"):
            raise JobNotFound(job_id)
        asked = [(place, entry.removeprefix("dead/"))]
    found = yield [_on(place, "XRANGE", place.dead, entry, entry, read=read_dead(queue)) for place, entry in asked]
    for jobs in found:
        if jobs:
            return jobs[0]  # type: ignore[no-any-return]
    raise JobNotFound(job_id)


def _start_of(job: ListedJob) -> datetime:
    return job.started_at or _FAR


def _due_of(job: ListedJob) -> datetime:
    return job.next_run_at or _FAR


def _age_of_end(job: ListedJob) -> float:
    return -job.finished_at.timestamp() if job.finished_at else 0.0


_ORDER: dict[State, Callable[[ListedJob], Any]] = {
    State.PENDING: _due_of,
    State.FAILED: _due_of,
    State.RUNNING: _start_of,
    State.DEAD: lambda job: job.finished_at or _FAR,
    State.SUCCEEDED: _age_of_end,
    State.CANCELLED: _age_of_end,
}


def _on(place: Partition, *args: calls.Argument, read: Callable[[Any], Any]) -> Call[Any]:
    """Make a plain command that goes where a partition is, whatever its arguments are."""
    return calls.command(*args, read=read, route=place.base)


def _records(place: Partition, ids: list[str]) -> Plan[list[dict[str, str]]]:
    """Read the fields of jobs; a job without a record gives an empty dict."""
    if not ids:
        return []
    return (yield [_on(place, "HMGET", place.job(job_id), *_FIELDS, read=_read_record) for job_id in ids])


def _in_state(place: Partition, ids: list[str], state: State) -> Plan[dict[str, dict[str, str]]]:
    """Read the fields of those jobs that are in one state; a job that says nothing is PENDING."""
    if not ids:
        return {}
    states = yield [_on(place, "HGET", place.job(job_id), "state", read=_state) for job_id in ids]
    matching = [job_id for job_id, found in zip(ids, states, strict=True) if found == state]
    records = yield from _records(place, matching)
    return {job_id: record for job_id, record in zip(matching, records, strict=True) if record}


def _state(value: bytes | None) -> str:
    return (value or b"PENDING").decode("utf-8", "replace")


def _read_record(values: list[bytes | None]) -> dict[str, str]:
    return {
        name: value.decode("utf-8", "replace")
        for name, value in zip(_FIELDS, values, strict=True) if value is not None
    }  # fmt: skip


def _job(place: Partition, job_id: str, state: State, record: dict[str, str], *, due: str | None = None,
         worker: str | None = None) -> ListedJob:
    return ListedJob(
        id=job_id,
        task=record.get("task", ""),
        queue=place.queue,
        state=state,
        attempts=whole(record.get("attempts"), 0),
        priority=whole(record.get("priority"), DEFAULT_PRIORITY),
        next_run_at=instant(record.get("due_at") if due is None else due),
        created_at=instant(record.get("created_at") or job_id_ms(job_id)),
        started_at=instant(record.get("started_at")),
        finished_at=instant(record.get("finished_at")),
        last_error=record.get("last_error"),
        worker=worker,
    )


def _waiting(place: Partition, state: State, count: int) -> Plan[list[ListedJob]]:
    jobs = (yield from _ready(place, count)) + (yield from _parked(place, count)) if state is State.PENDING else []
    first, wanted = 0, count
    found: dict[str, ListedJob] = {}
    while len(found) < wanted:
        (page,) = yield [_on(place, "ZRANGE", place.scheduled, first, first + PAGE - 1, "WITHSCORES", read=_texts)]
        ids, scores = page[::2], page[1::2]
        dues = dict(zip(ids, scores, strict=True))
        for job_id, record in (yield from _in_state(place, ids, state)).items():
            found[job_id] = _job(place, job_id, state, record, due=dues[job_id])
        if len(ids) < PAGE:
            break
        first += PAGE
    return jobs + list(found.values())[:wanted]


def _texts(answer: list[bytes]) -> list[str]:
    return [value.decode("utf-8", "replace") for value in answer]


def _groups(place: Partition) -> Plan[list[tuple[str, str]]]:
    """Give the ready streams that exist, each with the last id that its workers were given."""
    exist = yield [_on(place, "EXISTS", stream, read=int) for stream in place.ready]
    streams = [stream for stream, exists in zip(place.ready, exist, strict=True) if exists]
    if not streams:
        return []
    groups = yield [_on(place, "XINFO", "GROUPS", stream, read=_last_delivered) for stream in streams]
    return list(zip(streams, groups, strict=True))


def _last_delivered(answer: list[list[Any]]) -> str:
    for group in answer:
        told = dict(zip(group[::2], group[1::2], strict=True))
        if told[b"name"] == GROUP.encode():
            return str(told[b"last-delivered-id"].decode())
    return ""


def _read_entries(answer: list[Any]) -> list[tuple[str, str]]:
    return [
        (entry.decode(), dict(zip(values[::2], values[1::2], strict=True)).get(b"id", b"").decode("utf-8", "replace"))
        for entry, values in answer
    ]


def _ready(place: Partition, count: int) -> Plan[list[ListedJob]]:
    """Read entries that no worker was given yet; one that a foreign hand added has no job that names it."""
    jobs: list[ListedJob] = []
    for stream, last in (yield from _groups(place)):
        priority = stream.rpartition(":")[2]
        after = f"({last}" if last else "-"
        while len(jobs) < count:
            (page,) = yield [_on(place, "XRANGE", stream, after, "+", "COUNT", PAGE, read=_read_entries)]
            records = yield from _records(place, [job_id for _, job_id in page])
            for (entry, job_id), record in zip(page, records, strict=True):
                if record.get("entry") == f"{priority}/{entry}":
                    due = record.get("due_at") or entry.partition("-")[0]
                    jobs.append(_job(place, job_id, State.PENDING, record, due=due))
            if len(page) < PAGE:
                break
            after = f"({page[-1][0]}"
    return jobs[:count]


def _parked(place: Partition, count: int) -> Plan[list[ListedJob]]:
    """Read who waits for a slot of a concurrency key; only keys whose slots are held have such jobs."""
    (held,) = yield [_on(place, "HVALS", place.holding, read=_texts)]
    ids: list[str] = []
    for key in sorted(set(held)):
        ids += (yield [_on(place, "ZRANGE", place.parked(key), 0, count - 1, read=_texts)])[0]
    records = yield from _records(place, ids)
    return [_job(place, job_id, State.PENDING, told) for job_id, told in zip(ids, records, strict=True) if told]


def _running(place: Partition, count: int) -> Plan[list[ListedJob]]:
    jobs: list[ListedJob] = []
    for stream, last in (yield from _groups(place)):
        if not last:
            continue
        after = "-"
        while len(jobs) < count:
            (page,) = yield [_on(place, "XPENDING", stream, GROUP, after, "+", PAGE, read=_read_pending)]
            if page:
                jobs += yield from _runs(place, stream, page)
            if len(page) < PAGE:
                break
            after = f"({page[-1][0]}"
    return jobs[:count]


def _read_pending(answer: list[list[Any]]) -> list[tuple[str, str]]:
    return [(entry.decode(), worker.decode("utf-8", "replace")) for entry, worker, *_ in answer]


def _runs(place: Partition, stream: str, page: list[tuple[str, str]]) -> Plan[list[ListedJob]]:
    entries = yield [_on(place, "XRANGE", stream, entry, entry, read=_read_entries) for entry, _ in page]
    held = {found[0][1]: worker for (_, worker), found in zip(page, entries, strict=True) if found}
    records = yield from _records(place, list(held))
    return [
        _job(place, job_id, State.RUNNING, record, worker=worker)
        for (job_id, worker), record in zip(held.items(), records, strict=True) if record
    ]  # fmt: skip


def _dead(place: Partition, count: int) -> Plan[list[ListedJob]]:
    (page,) = yield [_on(place, "XRANGE", place.dead, "-", "+", "COUNT", count, read=read_dead(place.queue))]
    return [
        ListedJob(id=dead.id, task=dead.task, queue=place.queue, state=State.DEAD, attempts=dead.attempts,
                  priority=DEFAULT_PRIORITY, next_run_at=None, created_at=instant(job_id_ms(dead.id)), started_at=None,
                  finished_at=dead.died_at, last_error=dead.error)
        for dead in page
    ]  # fmt: skip


def _ended(place: Partition, state: State, count: int) -> Plan[tuple[list[ListedJob], bool]]:
    prefix, cursor = place.job(""), "0"
    found: dict[str, ListedJob] = {}
    for _ in range(SCAN_KEYS // SCAN_PAGE):
        ((cursor, names),) = yield [
            _on(place, "SCAN", cursor, "MATCH", prefix + "*", "COUNT", SCAN_PAGE, "TYPE", "hash", read=_read_scan)
        ]
        ids = [name.removeprefix(prefix) for name in names]
        for job_id, record in (yield from _in_state(place, ids, state)).items():
            found[job_id] = _job(place, job_id, state, record)
        if cursor == "0" or len(found) >= count:
            return list(found.values()), True
    return list(found.values()), False


def _read_scan(answer: list[Any]) -> tuple[str, list[str]]:
    return answer[0].decode(), _texts(answer[1])
