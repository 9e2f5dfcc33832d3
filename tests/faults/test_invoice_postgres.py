"""The invoice end to end, in PostgreSQL: one for each customer and period, whatever dies or comes back too late."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from rzsched import JobId, JobSpec
from rzsched.demo import customers
from tests.conftest import OwnServer, Process
from tests.fleet import Fleet, until
from tests.postgres_server import PostgresServer

PERIOD = "2026-11"
LEASE_S = 1.5
OWED = {customer.id: customer for customer in customers.load().values() if customer.can_be_billed}
LARGE = [customer.id for customer in OWED.values() if customer.is_large][:8]
SMALL = [customer.id for customer in OWED.values() if not customer.is_large][:40]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> PostgresServer:
    postgres.execute("DROP TABLE IF EXISTS invoices, invoice_runs")
    return postgres


class Billing:
    """Workers of the example's App."""

    def __init__(self, fleet: Fleet, database: PostgresServer) -> None:
        self.fleet = fleet
        self.database = database

    def worker(self, *options: str) -> Process:
        return self.fleet.worker("--lease", str(LEASE_S), "-c", "4", *options,
                                 env={"RZSCHED_DEMO_POSTGRES": self.database.url})  # fmt: skip

    def schedule(self, ids: list[str]) -> list[JobId]:
        return self.fleet.client.schedule_many(
            JobSpec(customers.TASK, (id_, PERIOD), queue=customers.QUEUE, idempotency_key=f"invoice:{id_}:{PERIOD}")
            for id_ in ids
        )

    def runs(self, outcome: str) -> int:
        return int(self.database.rows(f"SELECT count(*) FROM invoice_runs WHERE outcome = '{outcome}'")[0][0])

    def renders(self, worker: Process, among: list[JobId]) -> list[JobId]:
        """Name the jobs whose handlers a worker is in the middle of."""
        statuses = [self.fleet.client.get_job_status(job) for job in among]
        return [job for job, status in zip(among, statuses, strict=True)
                if status.state == "RUNNING" and status.progress and f"-{worker.pid}-" in (status.locked_by or "")]

    def check(self, ids: list[str]) -> None:
        rows = self.database.rows("SELECT customer, period, amount, currency FROM invoices")
        assert Counter((row[0], row[1]) for row in rows) == dict.fromkeys(((id_, PERIOD) for id_ in ids), 1)
        for id_, _, amount, currency in rows:
            assert (amount, currency) == (customers.amount_due(OWED[id_]), OWED[id_].currency)
        # What the database holds was recorded with it.
        assert not self.database.rows(
            "SELECT customer FROM invoices LEFT JOIN invoice_runs USING (execution, fence) "
            "WHERE outcome IS DISTINCT FROM 'written'"
        )


def test_everything_dies_and_each_customer_has_one_invoice(database: PostgresServer, own_server: OwnServer) -> None:
    server = own_server("--appendonly", "yes", "--appendfsync", "always")
    ids = LARGE + SMALL
    with Fleet(server.url, "rzsched.demo.postgres:app") as fleet:
        billing = Billing(fleet, database)
        killed, frozen = billing.worker(), billing.worker()
        jobs = billing.schedule(ids)
        until(lambda: billing.renders(killed, jobs) and billing.renders(frozen, jobs))
        frozen.send_signal(signal.SIGSTOP)
        assert billing.renders(frozen, jobs), "it was frozen in the middle of its work"
        fleet.kill(killed)
        survivor = billing.worker()
        server.kill()
        database.kill()
        server.restart()
        database.start()
        for job in jobs:
            fleet.client.wait(job, 30)
        frozen.send_signal(signal.SIGCONT)
        until(lambda: fleet.client.queue_stats("default").stale > 0, "a stale finish is refused")
        assert [job.created for job in billing.schedule(ids)] == [False] * len(ids)
        for worker in (frozen, survivor):
            assert fleet.stop(worker) == 0
        billing.check(ids)
        assert billing.runs("refused") > 0, "the one that was frozen wrote too late"
        fleet.check()


def test_a_write_that_comes_after_that_of_the_next_run_is_refused(
    database: PostgresServer, redis_url: str
) -> None:
    """The worker is frozen while it renders; its job runs elsewhere; then it goes on, and writes."""
    with Fleet(redis_url, "rzsched.demo.postgres:app") as fleet:
        billing = Billing(fleet, database)
        fleet.scheduler()
        frozen = billing.worker("--no-scheduler")
        (job,) = billing.schedule(LARGE[:1])
        until(lambda: billing.renders(frozen, [job]))
        frozen.send_signal(signal.SIGSTOP)
        billing.worker("--no-scheduler")
        assert fleet.client.wait(job, 20) == "written"
        (before,) = database.rows("SELECT fence, xmin::text FROM invoices")
        frozen.send_signal(signal.SIGCONT)
        until(lambda: billing.runs("refused") == 1, "the late write is refused")
        assert database.rows("SELECT fence, xmin::text FROM invoices") == [before], "nothing touched the row"
        fences = dict(database.rows("SELECT outcome, fence FROM invoice_runs"))
        assert fences["refused"] < fences["written"] == before[0]
        until(lambda: fleet.client.queue_stats("default").stale == 1, "its finish is refused too")
        assert fleet.client.get_job_status(job).result == "written"
        billing.check(LARGE[:1])
        fleet.check()
