"""One producer of the chaos run, a process of its own: it schedules jobs until SIGTERM, and notes what was accepted.

A call that raised may have been accepted all the same: nobody was promised anything. A keyed one is then repeated
until it is answered, as a careful caller does.
"""

import argparse
import json
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.ledger import ACCEPTED, CANCELLED, FAILURES, Ledger
from rzsched import Client, JobSpec
from rzsched.config import ClientSettings
from rzsched.errors import RzschedError

PAUSE_S = (0.01, 0.09)
KEY_TTL_S = 20
REPEAT_FOR_S = 12.0
WAIT_S = 2.0
KEYS = 8
QUEUE = "main"
OTHER_QUEUE = "side"


def fail(operation: str, error: Exception) -> None:
    Ledger.of_environment(FAILURES).write(f"{operation} {type(error).__name__}: {error}")


def accept(how: str, *job_ids: str) -> None:
    """Note what a call has promised."""
    lines = [json.dumps({"job": str(job_id), "how": how, "at": time.monotonic()}) for job_id in job_ids]
    Ledger.of_environment(ACCEPTED).write(*lines)


class Producer:
    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._seed = seed
        self._count = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        operations = [self.now] * 5 + [self.later] * 4 + [self.bulk] * 2 + [self.keyed] * 3 + [self.cancelled] + \
            [self.one_at_a_time] * 2  # fmt: skip
        while not self.stopping.is_set():
            operation = self._chance.choice(operations)
            try:
                operation()
            except RzschedError as error:
                fail(operation.__name__, error)
            self.stopping.wait(self._chance.uniform(*PAUSE_S))

    def _some_work(self) -> tuple[str, dict[str, Any]]:
        seconds = self._chance.choice((0, 0, 0, 0.01, 0.05, 0.3, 1.0))
        if self._chance.random() < 0.3:
            return "work_plain", {"seconds": seconds}
        return "work", {"seconds": seconds, "fails": self._chance.choice((0, 0, 0, 0, 1, 2))}

    def _queue(self) -> str:
        return self._chance.choice((QUEUE, QUEUE, OTHER_QUEUE))

    # ---- operations

    def now(self) -> None:
        task, said = self._some_work()
        priority = self._chance.randrange(10)
        accept("now", self._client.schedule_job(task, kwargs=said, queue=self._queue(), priority=priority))

    def later(self) -> None:
        task, said = self._some_work()
        delay = self._chance.uniform(0.05, 5.0)
        accept("later", self._client.schedule_job(task, kwargs=said, queue=self._queue(), delay=delay))

    def bulk(self) -> None:
        delays = (None, None, 0.5, 3.0)
        specs = [JobSpec("work", queue=self._queue(), delay=self._chance.choice(delays)) for _ in range(20)]
        accept("bulk", *self._client.schedule_many(specs))

    def keyed(self) -> None:
        self._count += 1
        key = f"order-{self._seed}-{self._count}"
        task, said = self._some_work()
        queue = self._queue()
        first = self._repeated(lambda: self._client.schedule_job(
            task, kwargs=said, queue=queue, idempotency_key=key, idempotency_ttl=KEY_TTL_S))  # fmt: skip
        if first is None:
            return
        accept("keyed", first)
        again = self._repeated(lambda: self._client.schedule_job(
            task, kwargs=said, queue=queue, idempotency_key=key, idempotency_ttl=KEY_TTL_S))  # fmt: skip
        if again is not None and (again != first or again.created):
            raise AssertionError(f"key {key} has given two jobs: {first} and {again}")

    def _repeated(self, call: Callable[[], Any]) -> Any:
        """Call until there is an answer; None where there is none in good time."""
        deadline = time.monotonic() + REPEAT_FOR_S / 2
        while True:
            try:
                return call()
            except RzschedError as error:
                fail("repeated", error)
                if time.monotonic() > deadline or self.stopping.wait(0.2):
                    return None

    def one_at_a_time(self) -> None:
        key = f"account-{self._chance.randrange(KEYS)}"
        said = {"seconds": self._chance.choice((0.0, 0.02, 0.1)), "key": key}
        accept("one at a time", self._client.schedule_job("work", kwargs=said, queue=QUEUE, concurrency_key=key))

    def cancelled(self) -> None:
        """Cancel a job long before it is due: it must never run."""
        job_id = self._client.schedule_job("work", queue=self._queue(), delay=2 * REPEAT_FOR_S)
        # Where an answer was lost, the next one says that the job had ended before.
        if self._repeated(lambda: self._client.cancel_job(job_id)) is not None:
            accept("cancelled", job_id)
            Ledger.of_environment(CANCELLED).write(job_id)


def options_of(description: str) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--url", required=True)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--durability", default="memory")
    options.add_argument("--replicas", type=int, default=1)
    return options.parse_args()


def settings_of(chosen: argparse.Namespace) -> ClientSettings:
    return ClientSettings(durability=chosen.durability, replicas=chosen.replicas, durability_timeout_s=WAIT_S)


def main() -> None:
    chosen = options_of("One producer of the chaos run.")
    with Client(chosen.url, settings=settings_of(chosen)) as client:
        producer = Producer(client, chosen.seed)
        signal.signal(signal.SIGTERM, lambda *_: producer.stopping.set())
        producer.run()


if __name__ == "__main__":
    main()
