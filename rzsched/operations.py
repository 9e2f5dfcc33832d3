"""Every operation of the producer API, once: `Client` runs it over a sync connection, `AsyncClient` over an async one.

An operation is a generator (sans-I/O): it yields steps that may travel together, receives their answers in the same
order, and returns its result. No steps at all let others have their turn. It checks its arguments before the first
step, so a bad one writes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rzsched import calls, keys
from rzsched.answers import QueueStats, WorkerInfo, read_stats, read_worker
from rzsched.calls import Enqueued
from rzsched.config import ClientSettings, Durability, Seconds
from rzsched.durability import Wait
from rzsched.errors import JobNotFound
from rzsched.exchange import Write
from rzsched.job import JobId, JobOptions, JobSpec, JobStatus, Prepared, TaskLike, prepare
from rzsched.keeping import confirm, hold_to, keep, wait_for
from rzsched.keys import Partition
from rzsched.layout import read_registry
from rzsched.names import check_queue
from rzsched.retry import Backoff
from rzsched.space import Plan, Space, partitions_of, register, reregister

CHUNKS_IN_A_WAVE = 100
CHUNKS_READ_AHEAD = 20
"""How much of an iterable that may be endless is read before it is written."""


def schedule_job(
    space: Space,
    task: str | TaskLike,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    run_at: datetime | float | None = None,
    delay: Seconds | None = None,
    queue: str | None = None,
    max_retries: int | None = None,
    backoff: Backoff | None = None,
    priority: int | None = None,
    idempotency_key: str | None = None,
    idempotency_ttl: Seconds | None = None,
    timeout: Seconds | None = None,
    expires: Seconds | None = None,
    retention: Seconds | None = None,
    concurrency_key: str | None = None,
    concurrency_limit: int | None = None,
    durability: Durability | None = None,
) -> Plan[JobId]:
    """Schedule one job: at `run_at`, after `delay`, or as soon as possible.

    An option that is None is left to the task, and where the task says nothing either to the default: queue
    "default", 3 retries, `Backoff()`, priority 5 (0 is first), an `idempotency_ttl` of 86,400 s, no timeout, no
    expiry, a retention of 3,600 s. Durations are seconds or timedeltas; `run_at` is an aware datetime or epoch
    seconds. An `idempotency_key` in use gives the id of the job that holds it, with `created` False.
    Of a `concurrency_key` at most `concurrency_limit` (default 1) jobs run at once. `durability` is what this call
    waits for (None: what the client says): "memory", "replicated", or "fsync".

    Raises ValueError or TypeError for bad arguments, PayloadError, PayloadTooLarge or InvalidName, always before
    anything is written, as ServerUnsuitable for a durability that the server can't give; NotDurable when it was not
    reached in time (the job exists); ConnectionFailed when the server can't be reached (the job may then exist: repeat
    the call with the same key).
    """
    spec = JobSpec(task, args, kwargs, run_at, delay, queue, max_retries, backoff, priority, idempotency_key,
                   idempotency_ttl, timeout, expires, retention, concurrency_key, concurrency_limit)
    return _schedule(space, prepare(spec, task, args, kwargs, space.settings.payload_limit), durability)


def schedule(space: Space, task: str | TaskLike, args: Sequence[Any], kwargs: Mapping[str, Any] | None,
             options: JobOptions, durability: Durability | None = None) -> Plan[JobId]:
    return _schedule(space, prepare(options, task, args, kwargs, space.settings.payload_limit), durability)


def _schedule(space: Space, job: Prepared, durability: Durability | None) -> Plan[JobId]:
    # Every call of a producer passes here: what waits for nothing is spared two generators.
    waits = durability is not None or space.settings.durability != "memory"
    wait = (yield from wait_for(space, durability)) if waits else None
    if space.is_stale(job.queue):
        yield from register(space, [job.queue])
    place = space.choose(job)
    write, lack = Write(place, [job]), ""
    answer: Enqueued
    if wait is None:
        (answer,) = yield [write]
    else:
        (answer,), lack = yield from keep(space, wait, [(place, write)])
    if answer.fresh:
        yield from reregister(space, {job.queue})
        lack = lack or (yield from confirm(space, wait, [place]))
    if lack:
        hold_to(answer.ids, lack)
    return answer.ids[0]


def schedule_many(space: Space, specs: Iterable[JobSpec], *,
                  durability: Durability | None = None) -> Plan[list[JobId]]:
    """Schedule many jobs, in chunks; give their ids in the order of the jobs.

    Each chunk (250 jobs or 8 MiB of one partition) is written whole or not at all. A list or tuple is checked whole
    before anything is written. Any other iterable is read 10,000 jobs (or 16 MiB) at a time, then written: where it
    raises, or gives a bad job, what it gave since the last write is not scheduled.

    What is written together waits together for its `durability`. Where that is not reached the rest is not written:
    NotDurable names the jobs that are.
    """
    ids: list[JobId] = []
    wait = yield from wait_for(space, durability)
    if isinstance(specs, list | tuple):
        jobs: Iterable[Prepared] = yield from _prepare_all(space, specs)
        chunks = CHUNKS_IN_A_WAVE
    else:
        jobs, chunks = (_prepare_spec(space, spec) for spec in specs), CHUNKS_READ_AHEAD
    for wave in _waves(space.settings, jobs, chunks):
        written, lack = yield from _schedule_wave(space, wave, wait)
        ids += written
        hold_to(ids, lack)
    return ids


def _prepare_all(space: Space, specs: Sequence[JobSpec]) -> Plan[list[Prepared]]:
    prepared: list[Prepared] = []
    for first in range(0, len(specs), space.settings.chunk):
        prepared += [_prepare_spec(space, spec) for spec in specs[first : first + space.settings.chunk]]
        yield []
    return prepared


def _prepare_spec(space: Space, spec: JobSpec) -> Prepared:
    if not isinstance(spec, JobSpec):
        raise TypeError(f"schedule_many takes JobSpec objects, not {type(spec).__name__}")
    return prepare(spec, spec.task, spec.args, spec.kwargs, space.settings.payload_limit)


def _waves(settings: ClientSettings, jobs: Iterable[Prepared], chunks: int) -> Iterator[list[Prepared]]:
    """Cut jobs into waves: the chunks of one are sent together, so that the server works while the rest is packed."""
    wave: list[Prepared] = []
    size = 0
    for job in jobs:
        wave.append(job)
        size += len(job.payload)
        if len(wave) >= settings.chunk * chunks or size >= settings.chunk_bytes * 2:
            yield wave
            wave, size = [], 0
    if wave:
        yield wave


def _schedule_wave(space: Space, jobs: list[Prepared], wait: Wait | None) -> Plan[tuple[list[JobId], str]]:
    by_queue: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        by_queue.setdefault(job.queue, []).append(index)
    yield from register(space, by_queue)
    chunks = [
        (place, chunk)
        for queue, indexes in by_queue.items()
        for place, of_place in _placed(space, queue, jobs, indexes)
        for chunk in _chunked(space.settings, jobs, of_place)
    ]
    answers: list[Enqueued]
    answers, lack = yield from keep(
        space, wait, [(place, Write(place, [jobs[index] for index in chunk])) for place, chunk in chunks]
    )
    fresh = [place for (place, _), got in zip(chunks, answers, strict=True) if got.fresh]
    if fresh:
        yield from reregister(space, {place.queue for place in fresh})
        lack = lack or (yield from confirm(space, wait, fresh))
    if len(by_queue) == 1 and space.partitions[jobs[0].queue] == 1:
        return [job_id for answer in answers for job_id in answer.ids], lack
    ids: dict[int, JobId] = {}
    for (_, chunk), answer in zip(chunks, answers, strict=True):
        ids.update(zip(chunk, answer.ids, strict=True))
    return [ids[index] for index in range(len(jobs))], lack


def _placed(space: Space, queue: str, jobs: list[Prepared],
            indexes: list[int]) -> Iterable[tuple[Partition, list[int]]]:
    if space.partitions[queue] == 1:
        return [(space.place(queue, 0), indexes)]
    by_place: dict[Partition, list[int]] = {}
    for index in indexes:
        by_place.setdefault(space.choose(jobs[index]), []).append(index)
    return by_place.items()


def _chunked(settings: ClientSettings, jobs: list[Prepared], indexes: list[int]) -> Iterable[list[int]]:
    chunk: list[int] = []
    size = 0
    for index in indexes:
        size += len(jobs[index].payload)
        if chunk and (len(chunk) >= settings.chunk or size > settings.chunk_bytes):
            yield chunk
            chunk, size = [], len(jobs[index].payload)
        chunk.append(index)
    yield chunk


def cancel_job(space: Space, job_id: str, *, durability: Durability | None = None) -> Plan[bool]:
    """Cancel a job: a waiting one ends now, a running one is asked to stop. Give False when it had ended already.

    Raises JobNotFound for an unknown id, InvalidName for what can't be an id, NotDurable as `schedule_job` does.
    """
    place = space.place_of(job_id)
    wait = yield from wait_for(space, durability)
    ((status, worker),), lack = yield from keep(space, wait, [(place, calls.cancel(place, job_id))])
    if status == "NOT_FOUND":
        raise JobNotFound(job_id)
    if status == "REQUESTED":
        channel = keys.worker_channel(space.settings.namespace, worker)
        yield [calls.publish(channel, job_id)]
    hold_to([job_id], lack)
    return bool(status != "FINISHED")


def get_job_status(space: Space, job_id: str) -> Plan[JobStatus]:
    """Read a job. Raises JobNotFound for one that is unknown or whose retention has passed."""
    (status,) = yield [calls.inspect(space.place_of(job_id), job_id)]
    if status is None:
        raise JobNotFound(job_id)
    return status  # type: ignore[no-any-return]


def queue_stats(space: Space, queue: str) -> Plan[QueueStats]:
    """Count what a queue holds: waiting, ready, running and dead jobs, and what ended so far."""
    check_queue(queue)
    places = yield from partitions_of(space, queue)
    counts = yield [calls.measure(place) for place in places]
    return read_stats(queue, counts)


def queues(space: Space) -> Plan[list[QueueStats]]:
    """Count what every known queue holds, by name."""
    registry = keys.queues(space.settings.namespace)
    (known,) = yield [calls.command("HGETALL", registry, read=read_registry)]
    result = []
    for queue in known:
        result.append((yield from queue_stats(space, queue)))
    return result


def workers(space: Space) -> Plan[list[WorkerInfo]]:
    """List the workers that are alive, by name."""
    namespace = space.settings.namespace
    attendance: calls.Attendance
    (attendance,) = yield [calls.attend(keys.workers(namespace))]
    if not attendance.ids:
        return []
    found = yield [
        calls.command("GET", keys.worker_info(namespace, worker), read=read_worker(worker)) for worker in attendance.ids
    ]
    return sorted(found, key=lambda worker: worker.id)
