"""Every operation on schedules, once, as plans; see `operations`.

A schedule lives in one partition of its queue, chosen by its id or its jobs' concurrency key. It has no other index:
who looks for one asks all partitions in one round trip.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rzsched import calls, cron_calls, keys
from rzsched.config import Durability, Seconds
from rzsched.cron_answers import CronStatus, read_cron
from rzsched.errors import CronNotFound
from rzsched.exchange import Step
from rzsched.job import JobOptions, Prepared, TaskLike, prepare
from rzsched.keeping import Placed, hold_to, keep, wait_for
from rzsched.keys import Partition
from rzsched.layout import read_registry
from rzsched.names import check_schedule_id
from rzsched.options import run_at_text
from rzsched.retry import Backoff
from rzsched.schedule import Timing, check_timing, fingerprint
from rzsched.space import Plan, Space, register

MOST_BACKFILL = 10_000


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A checked schedule, ready to be written."""

    id: str
    timing: Timing
    job: Prepared

    def place(self, space: Space) -> Partition:
        """Give the partition it lives in, the same for every node: where the jobs of its concurrency key are."""
        return space.place_of_key(self.job.queue, self.job.concurrency_key or self.id)

    def fields(self) -> dict[str, str | bytes]:
        more = dict(zip(self.job.more[::2], self.job.more[1::2], strict=True))
        return {
            "task": self.job.task, "payload": self.job.payload, **self.timing.fields(),
            **{f"job.{name}": value for name, value in more.items()},
        }  # fmt: skip


def define(task: str | TaskLike, *, id: str | None, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
           options: JobOptions, payload_limit: int, **timing: Any) -> ScheduleSpec:
    """Check a schedule whole; its default id is its task's name."""
    job = prepare(options, task, args, kwargs, payload_limit)
    return ScheduleSpec(check_schedule_id(job.task if id is None else id), check_timing(**timing), job)


def schedule_cron(
    space: Space,
    task: str | TaskLike,
    *,
    cron: str | None = None,
    every: Seconds | None = None,
    tz: str = "UTC",
    id: str | None = None,
    overlap: str = "skip",
    misfire: str = "once",
    misfire_limit: int = 100,
    misfire_window: Seconds | None = None,
    jitter: Seconds = 0,
    start: datetime | float | None = None,
    end: datetime | float | None = None,
    dst_gap: str = "after",
    dst_fold: str = "first",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    max_retries: int | None = None,
    backoff: Backoff | None = None,
    priority: int | None = None,
    timeout: Seconds | None = None,
    expires: Seconds | None = None,
    retention: Seconds | None = None,
    concurrency_key: str | None = None,
    concurrency_limit: int | None = None,
    durability: Durability | None = None,
) -> Plan[str]:
    """Register a schedule, or change the one of that id; give its id.

    An unchanged definition never moves the next instant, so every node may call this at its start. `cron` has five
    fields, or six with seconds first; `every` is an interval in seconds, counted from `start`, else from the epoch.
    A new schedule does not fire before its first instant. What the job options leave open the task says, as for
    `schedule_job`. `durability` is that of the definition; what it fires is as durable as the server makes it.

    Raises InvalidCron, ValueError, TypeError, PayloadError or InvalidName before anything is written, NotDurable (with
    the schedule's id) as `schedule_job` does.
    """
    options = JobOptions(queue=queue, max_retries=max_retries, backoff=backoff, priority=priority, timeout=timeout,
                         expires=expires, retention=retention, concurrency_key=concurrency_key,
                         concurrency_limit=concurrency_limit)
    spec = define(
        task, id=id, args=args, kwargs=kwargs, options=options, payload_limit=space.settings.payload_limit, cron=cron,
        every=every, tz=tz, overlap=overlap, misfire=misfire, misfire_limit=misfire_limit,
        misfire_window=misfire_window, jitter=jitter, start=start, end=end, dst_gap=dst_gap, dst_fold=dst_fold,
    )  # fmt: skip
    return put(space, [spec], durability=durability)


def put(space: Space, specs: Sequence[ScheduleSpec], owner: str = "",
        durability: Durability | None = None) -> Plan[str]:
    """Register schedules; give the last one's id. First instants follow from the server's time, not this host's."""
    wait = yield from wait_for(space, durability)
    yield from register(space, {spec.job.queue for spec in specs})
    (now_ms,) = yield [calls.server_ms()]
    # Where partitions are at several servers no script can see them all; see `_leave_elsewhere`.
    registry = "" if space.is_spread else keys.queues(space.settings.namespace)
    steps: list[Placed] = []
    for spec in specs:
        place = spec.place(space)
        fields = spec.fields()
        flat = [word for pair in fields.items() for word in pair]
        steps.append((place, cron_calls.register(place, registry, spec.id, fingerprint(fields),
                                                 spec.timing.next_after(now_ms), owner, flat)))
    statuses, lack = (yield from keep(space, wait, steps)) if steps else ([], "")
    if space.is_spread:
        new = [spec for spec, status in zip(specs, statuses, strict=True) if status == "NEW"]
        yield from _leave_elsewhere(space, new)
    hold_to([spec.id for spec in specs], lack)
    return specs[-1].id if specs else ""


def _leave_elsewhere(space: Space, specs: Sequence[ScheduleSpec]) -> Plan[None]:
    """Remove schedules from where they were before their queue changed; their counts and history stay behind."""
    places = (yield from _places(space)) if specs else []
    asked = [
        (place, spec.id) for spec in specs for place in places
        if place != spec.place(space)
    ]  # fmt: skip
    if not asked:
        return
    found = yield [calls.command("HEXISTS", place.cron(each), "task", read=bool) for place, each in asked]
    steps: list[Step] = [
        cron_calls.unregister(place, each) for (place, each), there in zip(asked, found, strict=True) if there
    ]
    if steps:
        yield steps


def declare(space: Space, owner: str, specs: Sequence[ScheduleSpec]) -> Plan[list[str]]:
    """Register what an App declares, and remove what it owned and declares no longer; give the removed ids."""
    yield from put(space, specs, owner)
    declared = {spec.id for spec in specs}
    found = yield from _owners(space)
    stale = [(place, each) for place, each, whose in found if whose == owner and each not in declared]
    if stale:
        yield [cron_calls.unregister(place, each, owner) for place, each in stale]
    return [each for _, each in stale]


def _places(space: Space) -> Plan[list[Partition]]:
    registry = keys.queues(space.settings.namespace)
    (counts,) = yield [calls.command("HGETALL", registry, read=read_registry)]
    return [space.place(queue, number) for queue, count in counts.items() for number in range(count)]


def _all_ids(space: Space) -> Plan[list[tuple[Partition, str]]]:
    places = yield from _places(space)
    if not places:
        return []
    answers = yield [calls.command("SMEMBERS", place.schedules, read=_names) for place in places]
    return [(place, each) for place, ids in zip(places, answers, strict=True) for each in ids]


def _names(answer: Iterable[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in answer]


def _owners(space: Space) -> Plan[list[tuple[Partition, str, str]]]:
    every = yield from _all_ids(space)
    if not every:
        return []
    owners = yield [calls.command("HGET", place.cron(each), "owner", read=_word) for place, each in every]
    return [(place, each, owner) for (place, each), owner in zip(every, owners, strict=True)]


def _word(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _find(space: Space, schedule_id: str) -> Plan[Partition]:
    check_schedule_id(schedule_id)
    places = yield from _places(space)
    found = []
    if places:
        found = yield [calls.command("HEXISTS", place.cron(schedule_id), "task", read=bool) for place in places]
    for place, there in zip(places, found, strict=True):
        if there:
            return place
    raise CronNotFound(schedule_id)


def list_crons(space: Space) -> Plan[list[CronStatus]]:
    """List all schedules, by id."""
    every = yield from _all_ids(space)
    result: list[CronStatus] = []
    for first in range(0, len(every), space.settings.chunk):
        result += yield from _read(space, every[first : first + space.settings.chunk])
    return sorted(result, key=lambda each: each.id)


def get_cron(space: Space, schedule_id: str) -> Plan[CronStatus]:
    """Read a schedule. Raises CronNotFound."""
    place = yield from _find(space, schedule_id)
    found = yield from _read(space, [(place, schedule_id)])
    if not found:
        raise CronNotFound(schedule_id)
    return found[0]


def _read(space: Space, every: Sequence[tuple[Partition, str]]) -> Plan[list[CronStatus]]:
    steps: list[Step] = []
    for place, each in every:
        steps += [
            calls.command("HGETALL", place.cron(each), read=_table),
            calls.command("HGETALL", place.history(each), read=_table),
            calls.command("LLEN", place.held(each), read=int),
        ]
    answers = yield steps
    rows = zip(every, answers[::3], answers[1::3], answers[2::3], strict=True)
    return [read_cron(place.queue, each, *told) for (place, each), *told in rows if told[0]]


def _table(answer: Any) -> dict[str, bytes]:
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode("utf-8", "replace"): value for name, value in pairs}


def pause_cron(space: Space, schedule_id: str) -> Plan[None]:
    """Stop a schedule from firing until it is resumed; what was written already runs. Raises CronNotFound."""
    place = yield from _find(space, schedule_id)
    _there(schedule_id, (yield [cron_calls.pause(place, schedule_id)])[0])


def resume_cron(space: Space, schedule_id: str) -> Plan[None]:
    """Let a paused schedule go on, from its first instant from now on. Raises CronNotFound."""
    place = yield from _find(space, schedule_id)
    status = "CHANGED"
    while status == "CHANGED":
        (found,) = yield from _read(space, [(place, schedule_id)])
        (now_ms,) = yield [calls.server_ms()]
        next_ms = found.timing.next_after(now_ms)
        (status,) = yield [cron_calls.resume(place, schedule_id, found.fingerprint, next_ms)]
    _there(schedule_id, status)


def trigger_cron(space: Space, schedule_id: str, *, durability: Durability | None = None) -> Plan[str]:
    """Run a schedule's job now, beside its plan; give the job's id. Raises CronNotFound.

    Unless the schedule allows overlap it waits for the occurrence that runs. It also works on a paused schedule.
    """
    wait = yield from wait_for(space, durability)
    place = yield from _find(space, schedule_id)
    call = cron_calls.trigger(place, schedule_id, "triggered", [""])
    (written,), lack = yield from keep(space, wait, [(place, call)])
    if not written:
        raise CronNotFound(schedule_id)
    hold_to([written[0][0]], lack)
    return str(written[0][0])


def remove_cron(space: Space, schedule_id: str) -> Plan[None]:
    """Remove a schedule, with its occurrences that have not begun; one that runs goes on. Raises CronNotFound.

    One that code declares comes back when a worker of that code starts.
    """
    place = yield from _find(space, schedule_id)
    _there(schedule_id, (yield [cron_calls.unregister(place, schedule_id)])[0])


def backfill_cron(space: Space, schedule_id: str, start: datetime | float, end: datetime | float, *,
                  durability: Durability | None = None) -> Plan[list[str]]:
    """Run the occurrences of a range of the past, both ends included; give the ids of the jobs made for it.

    They run oldest first, one after the other unless the schedule allows overlap. An instant whose job is still
    kept is left out. Raises CronNotFound, ValueError for more than 10,000 instants or a range that is not past.
    """
    start_ms, end_ms = int(run_at_text(start, None) or 0), int(run_at_text(end, None) or 0)
    if start_ms > end_ms:
        raise ValueError("start must not be after end")
    wait = yield from wait_for(space, durability)
    place = yield from _find(space, schedule_id)
    (found,) = yield from _read(space, [(place, schedule_id)])
    (now_ms,) = yield [calls.server_ms()]
    if end_ms > now_ms:
        raise ValueError("end must not be in the future: what is to come the schedule fires itself")
    instants = found.timing.instants(start_ms, end_ms, MOST_BACKFILL + 1)
    if len(instants) > MOST_BACKFILL:
        raise ValueError(f"the range holds more than {MOST_BACKFILL} instants: cut it into parts")
    ids: list[str] = []
    for first in range(0, len(instants), 200):
        call = cron_calls.trigger(place, schedule_id, "backfilled", instants[first : first + 200])
        (written,), lack = yield from keep(space, wait, [(place, call)])
        if written is None:
            raise CronNotFound(schedule_id)
        ids += [job_id for job_id, what in written if what != "KNOWN"]
        hold_to(ids, lack)
    return ids


def _there(schedule_id: str, status: str) -> None:
    if status == "NOT_FOUND":
        raise CronNotFound(schedule_id)


__all__ = ["ScheduleSpec", "backfill_cron", "declare", "define", "get_cron", "list_crons", "pause_cron", "put",
           "remove_cron", "resume_cron", "schedule_cron", "trigger_cron"]  # fmt: skip
