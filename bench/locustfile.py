"""Locust users of the producer API: now, later, bulk, keyed, cancel, status; `bench.load` runs it.

Locust has patched the standard library for gevent before it loads this, so all users share one process.
Every id that a call accepted goes into a ledger outside Redis, at once.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from locust import User, between, task

from bench.ledger import ACCEPTED, CANCELLED, FAILURES, Ledger
from rzsched import Client, JobSpec

T = TypeVar("T")
JOB = "record"
BULK = 20
KEYS = 300
RECENT: deque[str] = deque(maxlen=1000)
CLIENT = Client(os.environ["RZSCHED_URL"], os.environ["RZSCHED_NAMESPACE"])


class Producer(User):  # type: ignore[misc, unused-ignore]
    """One who schedules jobs and asks after them."""

    wait_time = between(0.02, 0.08)

    def timed(self, operation: str, call: Callable[[], T]) -> T | None:
        """Do it, and let Locust's statistics know how long it took and whether it failed."""
        result, error, start = None, None, time.perf_counter()
        try:
            result = call()
        except Exception as failure:
            error = failure
            Ledger.of_environment(FAILURES).write(f"{operation}: {failure!r}")
        elapsed_ms = (time.perf_counter() - start) * 1000
        self.environment.events.request.fire(
            request_type="rzsched", name=operation, response_time=elapsed_ms, response_length=0, exception=error,
            context={},
        )  # fmt: skip
        return result

    def accept(self, job_id: str | None) -> None:
        if job_id is not None:
            Ledger.of_environment(ACCEPTED).write(job_id)
            RECENT.append(job_id)

    @task(5)
    def now(self) -> None:
        self.accept(self.timed("now", lambda: CLIENT.schedule_job(JOB)))

    @task(3)
    def later(self) -> None:
        self.accept(self.timed("later", lambda: CLIENT.schedule_job(JOB, delay=random.uniform(0.05, 3.0))))

    @task(1)
    def bulk(self) -> None:
        specs = [JobSpec(JOB, delay=random.choice((None, 0.5)), priority=random.randrange(10)) for _ in range(BULK)]
        for job_id in self.timed("bulk", lambda: CLIENT.schedule_many(specs)) or []:
            self.accept(job_id)

    @task(2)
    def keyed(self) -> None:
        key = f"order-{random.randrange(KEYS)}"
        job_id = self.timed("keyed", lambda: CLIENT.schedule_job(JOB, idempotency_key=key))
        if job_id is not None and job_id.created:
            self.accept(job_id)

    @task(2)
    def cancel(self) -> None:
        """Cancel a job that waits for long, or one that is just about to run."""
        job_id = CLIENT.schedule_job(JOB, delay=random.choice((0.02, 60.0)))
        self.accept(job_id)
        if self.timed("cancel", lambda: CLIENT.cancel_job(job_id)):
            Ledger.of_environment(CANCELLED).write(job_id)

    @task(3)
    def status(self) -> None:
        if RECENT:
            job_id = random.choice(RECENT)
            self.timed("status", lambda: CLIENT.get_job_status(job_id))
