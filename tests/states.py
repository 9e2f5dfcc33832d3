"""Jobs in every state, put there by the real verbs, and the proof that each is in exactly one place."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import redis

from rzsched import calls, keys
from rzsched.audit import Report, audit
from rzsched.calls import Call, Claimed, Finished
from rzsched.client import Client
from rzsched.connect import LinkSettings, SyncLink
from rzsched.job import prepare
from rzsched.options import JobOptions
from rzsched.status import JobStatus

T = TypeVar("T")
LEASE_MS = 600_000
"""Longer than any test: a lease ends where a test ends it."""


def assert_one_place(server: str | Client, namespace: str = "rz") -> Report:
    """Prove from the keys alone that every job is in exactly one place; give what was counted."""
    if isinstance(server, Client):
        report = server.run(audit(server.space))
    else:
        with Client(server, namespace) as client:
            report = client.run(audit(client.space))
    assert not report.findings, "\n".join(str(finding) for finding in report.findings)
    return report


class Stage:
    """One partition of a real server, seen through the calls, with a clock that the test moves (`now_ms`)."""

    def __init__(self, url: str, queue: str = "q", namespace: str = "rz") -> None:
        self.url = url
        self.namespace = namespace
        self.link = SyncLink(url, LinkSettings())
        self.raw: Any = redis.Redis.from_url(url, protocol=2)
        self.place = keys.partition(namespace, queue, 0)
        self.client = Client(url, namespace)
        self._numbers = count(1)
        self.raw.hset(keys.queues(namespace), queue, 1)
        seconds, micros = self.raw.time()
        self.now_ms = int(seconds) * 1000 + int(micros) // 1000

    def close(self) -> None:
        self.link.close()
        self.raw.close()
        self.client.close()

    @property
    def now(self) -> str:
        return str(self.now_ms)

    def run(self, call: Call[T]) -> T:
        (answer,) = self.link.execute([call])
        return answer  # type: ignore[no-any-return]

    def run_raw(self, *words: str) -> Any:
        """Run a plain command; the answer is as the server gave it."""
        return self.run(calls.command(*words, read=lambda answer: answer))

    def check(self) -> Report:
        return assert_one_place(self.client)

    def new_worker(self) -> str:
        return f"worker-{next(self._numbers)}"

    def enqueue(self, task: str = "task", **options: Any) -> str:
        """Write one job due now, or later by `delay` or `run_at`; give its id."""
        return self.enqueue_many([options], task).ids[0]

    def enqueue_many(self, options: Sequence[dict[str, Any]], task: str = "task") -> calls.Enqueued:
        jobs = [prepare(JobOptions(queue=self.place.queue, **each), task, (1,), None, 1 << 20) for each in options]
        return self.run(calls.enqueue(self.place, jobs, self.now).call())

    def promote(self, limit: int = 1000, owner: str = "scheduler", lease_s: float = 600) -> calls.Promotion:
        return self.run(calls.promote(self.place, owner, lease_s, limit, self.now))

    def promote_claim(self, worker: str, most: int, owner: str = "scheduler") -> tuple[calls.Promotion, calls.Claims]:
        return self.run(calls.promote_claim(self.place, owner, 600, 1000, worker, LEASE_MS, most, self.now))

    def claim(self, worker: str, limit: int = 1000, turn: str = "", delivered: Sequence[str] = ()) -> list[Claimed]:
        return self.run(calls.claim(self.place, worker, LEASE_MS, limit, turn, delivered, self.now))

    def finish(self, worker: str, *outcomes: calls.Outcome, limit: int = 0) -> Finished:
        return self.run(calls.finish(self.place, worker, LEASE_MS, limit, "", outcomes, self.now))

    def recover(self, worker: str = "", **options: Any) -> list[tuple[str, str, str]]:
        answer = self.run(calls.recover(self.place, worker=worker, now_ms=self.now, **options))
        return [(each.id, each.what, each.worker) for each in answer]

    def release(self, worker: str, kept: Sequence[str] = (), *, leave: bool = False) -> list[str]:
        return self.run(calls.release(self.place, worker, kept, leave=leave, now_ms=self.now))

    def cancel(self, job_id: str) -> tuple[str, str]:
        return self.run(calls.cancel(self.place, job_id, self.now))

    def over_dead(self, verb: str, ids: Sequence[str] = (), **page: Any) -> calls.Page:
        return self.run(calls.over_dead(verb, self.place, ids=ids, now_ms=self.now, **page))

    def status(self, job_id: str) -> JobStatus | None:
        return self.run(calls.inspect(self.place, job_id, self.now))

    def state(self, job_id: str) -> str:
        status = self.status(job_id)
        return "gone" if status is None else str(status.state)

    def job(self, job_id: str) -> dict[str, str]:
        """Read a job's hash as it stands."""
        stored = self.raw.hgetall(self.place.job(job_id))
        return {name.decode(): value.decode("utf-8", "replace") for name, value in stored.items()}

    def lose_lease(self, job_id: str) -> None:
        """End a lease, as time would."""
        self.raw.delete(self.place.lock(job_id))

    def deliver(self, worker: str, limit: int = 1000) -> list[str]:
        """Read new entries as a blocked worker does, claiming nothing; give them as `priority/stream id`."""
        found = []
        for priority, stream in enumerate(self.place.ready):
            self.run(calls.join(self.place, 0, []))
            read = self.raw.xreadgroup(keys.GROUP, worker, {stream: ">"}, count=limit)
            found += [f"{priority}/{entry.decode()}" for entry, _ in (read[0][1] if read else [])]
        return found


def outcome(what: str, run: Claimed, a: str = "", b: str = "", c: str = "") -> calls.Outcome:
    """Write one outcome as `finish` takes it; `b` is a retention where a job ends, else a delay."""
    default = "3600000" if what in {"SUCCEEDED", "CANCELLED"} else "0"
    return (what, run.id, run.fence, run.entry, a, b or default, c)


def start(stage: Stage, worker: str, **options: Any) -> Claimed:
    """Enqueue a job and have `worker` run it; other ready jobs go back to where they were."""
    job_id = stage.enqueue(**options)
    claimed = stage.claim(worker)
    stage.finish(worker, *(outcome("RELEASED", run) for run in claimed if run.id != job_id))
    (own,) = [run for run in claimed if run.id == job_id]
    return own


def scheduled(stage: Stage, **options: Any) -> str:
    return stage.enqueue(delay=3600, **options)


def ready(stage: Stage, **options: Any) -> str:
    return stage.enqueue(**options)


def delivered(stage: Stage, **options: Any) -> str:
    """Deliver a job that nobody claimed: its worker may have died in between."""
    job_id = stage.enqueue(**options)
    reader = stage.new_worker()
    stage.deliver(reader)
    priority, entry = stage.job(job_id)["entry"].split("/")
    stage.raw.xclaim(stage.place.ready[int(priority)], keys.GROUP, stage.new_worker(), 0, [entry], justid=True)
    stage.release(reader)
    return job_id


def running(stage: Stage, **options: Any) -> str:
    return start(stage, stage.new_worker(), **options).id


def _ended_with(stage: Stage, what: str, a: str, b: str, options: dict[str, Any]) -> str:
    worker = stage.new_worker()
    run = start(stage, worker, **options)
    assert stage.finish(worker, outcome(what, run, a, b, options.get("idempotency_key", ""))).notes == {}
    return run.id


def retry_waiting(stage: Stage, **options: Any) -> str:
    return _ended_with(stage, "RETRY", "ValueError: no", "60000", options)


def dead(stage: Stage, **options: Any) -> str:
    return _ended_with(stage, "DEAD", "ValueError: no", "", options)


def succeeded(stage: Stage, **options: Any) -> str:
    return _ended_with(stage, "SUCCEEDED", "", "", options)


def cancelled(stage: Stage, **options: Any) -> str:
    job_id = stage.enqueue(**options)
    assert stage.cancel(job_id)[0] == "CANCELLED"
    return job_id


def parked(stage: Stage, **options: Any) -> str:
    """Park a job behind a running one of its concurrency key."""
    key = f"key {stage.new_worker()}"
    start(stage, stage.new_worker(), concurrency_key=key)
    job_id = stage.enqueue(concurrency_key=key, **options)
    parker = stage.new_worker()
    stage.finish(parker, *(outcome("RELEASED", run) for run in stage.claim(parker)))
    return job_id


SEEDERS: dict[str, Callable[..., str]] = {
    "scheduled": scheduled,
    "ready": ready,
    "delivered": delivered,
    "parked": parked,
    "running": running,
    "retry_waiting": retry_waiting,
    "dead": dead,
    "succeeded": succeeded,
    "cancelled": cancelled,
}
