"""What the demo plays: 200 invoices due over two seconds, a worker that is killed, and one that comes back too late."""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from rzsched import calls
from rzsched.client import Client
from rzsched.demo.customers import QUEUE, TASK, Customer, due_order
from rzsched.demo.fleet import LEASE_S, DemoFailed, Fleet, WorkerProcess
from rzsched.demo.ledger import Books
from rzsched.demo.watch import Tell, Watch
from rzsched.job import JobId, JobSpec
from rzsched.space import Plan

WINDOW_S = 2.0
LEAD_S = 0.5
_TICK_S = 0.02
_LOCK_S = 0.05


def schedule(client: Client, customers: Sequence[Customer], begin: float) -> list[JobId]:
    """Schedule each customer's invoice, one after the other over the window; a second call makes no second job."""
    period = f"{datetime.fromtimestamp(begin, UTC):%Y-%m}"
    step = WINDOW_S / max(1, len(customers) - 1)
    specs = [
        JobSpec(
            TASK,
            args=(customer.id, period),
            run_at=begin + index * step,
            queue=QUEUE,
            idempotency_key=f"invoice:{customer.id}:{period}",
            # A large one takes long, so it is likelier to be interrupted; the rest is left to the task.
            max_retries=5 if customer.is_large else None,
        )
        for index, customer in enumerate(customers)
    ]
    return client.schedule_many(specs)


class Story:
    def __init__(self, client: Client, books: Books, fleet: Fleet, tell: Tell) -> None:
        self._client = client
        self._books = books
        self._fleet = fleet
        self._tell = tell
        self._watch = Watch(client, books, tell)

    def play(self, customers: Iterable[Customer]) -> tuple[int, int]:
        """Play it to the end; give how many jobs were scheduled, and how many more by scheduling all again."""
        order, (first_group, second_group) = due_order(customers)
        self._start_workers(2)
        scheduled, again = self._schedule(order)
        killed = self._kill(self._strike(first_group, spare_scheduler=True))
        paused = self._pause(self._strike(second_group, spare_scheduler=False))
        self._await_replacement(killed, paused)
        self._bring_back(*paused)
        self._until("all invoices to be written or dead", self._is_settled, 30)
        return scheduled, again

    # ---- the steps

    def _start_workers(self, count: int) -> None:
        started = [self._fleet.start() for _ in range(count)]
        self._until("the workers to start", lambda: len(self._client.workers()) >= count, 30)
        self._tell(f"{' and '.join(map(str, started))} run, lease {LEASE_S:g} s")

    def _schedule(self, order: Sequence[Customer]) -> tuple[int, int]:
        begin = time.time() + LEAD_S
        scheduled = sum(job_id.created for job_id in schedule(self._client, order, begin))
        self._tell(f"{scheduled} invoices scheduled, due over {WINDOW_S:g} s")
        again = sum(job_id.created for job_id in schedule(self._client, order, begin))
        self._tell(f"the same scheduled again, as after a lost answer: {again} new jobs")
        return scheduled, again

    def _strike(self, group: set[str], *, spare_scheduler: bool) -> WorkerProcess:
        """Freeze a worker in the middle of a group of large invoices, once all of the group have begun.

        Where there is a choice, the worker that moves the due jobs is spared, or just not.
        """
        found: list[WorkerProcess] = []

        def caught() -> bool:
            if not group <= self._books.started():
                return False
            scheduler_pid = self._scheduler_pid()
            busy = [worker for worker in self._fleet.alive if self._held_by(worker) & group]
            busy.sort(key=lambda worker: (worker.pid == scheduler_pid) == spare_scheduler)
            found.extend(worker for worker in busy[:1] if self._freeze(worker))
            return bool(found)

        self._until("a worker to be busy", caught, 30)
        return found[0]

    def _freeze(self, worker: WorkerProcess) -> bool:
        """Stop a worker; let it go on where it has just ended its runs, or holds the write lock that others need."""
        worker.freeze()
        if self._held_by(worker) and self._books.can_be_written(_LOCK_S):
            return True
        worker.resume()
        return False

    def _kill(self, worker: WorkerProcess) -> set[str]:
        held = self._held_by(worker)
        worker.kill()
        self._tell(f"{worker} killed with SIGKILL while it wrote {len(held)} invoices")
        self._tell(f"{self._fleet.start()} is started in its place")
        return held

    def _pause(self, worker: WorkerProcess) -> tuple[WorkerProcess, set[str]]:
        held = self._held_by(worker)
        role = ", and moved the due jobs" if worker.pid == self._scheduler_pid() else ""
        self._tell(f"{worker} paused with SIGSTOP while it wrote {len(held)} invoices{role}")
        return worker, held

    def _await_replacement(self, killed: set[str], paused: tuple[WorkerProcess, set[str]]) -> None:
        """Wait until the work of both is done by others."""
        worker, held = paused

        def done() -> bool:
            writers = self._books.writers()
            return all(customer in writers for customer in killed | held)

        self._until("the replacement to do their work", done, 40)
        self._tell(f"others have written what the killed one and {worker} were busy with")

    def _bring_back(self, worker: WorkerProcess, held: set[str]) -> None:
        """Let the paused worker go on: it writes, too late, and reports, too late."""
        refused, stale = self._books.count("refused"), self._client.queue_stats(QUEUE).stale
        self._tell(f"{worker} continued with SIGCONT: it knows nothing of the time that has passed")
        worker.resume()
        self._until(
            "the stale writes and finishes to be refused",
            lambda: self._books.count("refused") >= refused + len(held)
            and self._client.queue_stats(QUEUE).stale >= stale + len(held),
            20,
        )

    # ---- looking on

    def _until(self, what: str, condition: Callable[[], bool], limit_s: float) -> None:
        """Look until the condition holds, telling meanwhile what happens. Raises DemoFailed."""
        deadline = time.monotonic() + limit_s
        while not condition():
            self._fleet.check()
            self._watch.look()
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {limit_s:g} s in vain for {what}")
            time.sleep(_TICK_S)
        self._watch.look(at_once=True)

    def _is_settled(self) -> bool:
        stats = self._client.queue_stats(QUEUE)
        return stats.scheduled + stats.ready + stats.running == 0

    def _held_by(self, worker: WorkerProcess) -> set[str]:
        return {customer for pid, customer in self._books.open_runs() if pid == worker.pid}

    def _scheduler_pid(self) -> int:
        """Find which process moves the due jobs: a scheduler's id is `host-pid-chance`."""
        return self._client.run(_owner_pid(self._client.space.place(QUEUE, 0).lease))


def _owner_pid(lease: str) -> Plan[int]:
    (owner,) = yield [calls.command("GET", lease, read=lambda answer: (answer or b"").decode())]
    return int(owner.split("-")[-2]) if owner else 0
