"""The invoice in PostgreSQL: one for each customer and period, whatever dies, and whoever comes back too late.

    pip install 'rzsched[postgres]'
    export RZSCHED_DEMO_POSTGRES=postgresql://localhost/billing
    rzsched worker rzsched.demo.postgres:app
    rzsched enqueue billing.invoice --args '["C001", "2026-11"]' --idempotency-key invoice:C001:2026-11

Three things make the effect exactly-once, all of them in the database:

* The business key (customer, period) is the primary key: no second row can come to be.
* Each write carries the fence of its run, and the write itself compares: a worker that lost its job, and was
  overtaken, changes nothing. No look before the write could say that, for it may be frozen between the two.
* The run is recorded in the same transaction, so that the record and the effect are there together or not at all.

Fences are compared only between runs of one job. A row of another job means that the customer was billed before.
"""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import psycopg

from rzsched import App, Backoff, Context
from rzsched.demo import customers
from rzsched.demo.app import RENDER_S

SCHEMA = """
CREATE TABLE IF NOT EXISTS invoices (
  customer text, period text, amount numeric NOT NULL, currency text NOT NULL,
  execution text NOT NULL, fence bigint NOT NULL, PRIMARY KEY (customer, period));
CREATE TABLE IF NOT EXISTS invoice_runs (
  execution text, fence bigint, attempt int NOT NULL, pid int NOT NULL, outcome text NOT NULL,
  PRIMARY KEY (execution, fence));
"""
WRITE = """
INSERT INTO invoices (customer, period, amount, currency, execution, fence)
VALUES (%(customer)s, %(period)s, %(amount)s, %(currency)s, %(execution)s, %(fence)s)
ON CONFLICT (customer, period) DO UPDATE
SET amount = excluded.amount, currency = excluded.currency, fence = excluded.fence
WHERE invoices.execution = excluded.execution AND invoices.fence < excluded.fence
"""
RECORD = """
INSERT INTO invoice_runs (execution, fence, attempt, pid, outcome)
VALUES (%(execution)s, %(fence)s, %(attempt)s, %(pid)s, %(outcome)s)
"""
CONNECT_S = 5
BACKOFF = Backoff(base=0.5, factor=2, max=60, jitter=0.2)


def connect() -> psycopg.Connection:
    """Connect to the database that $RZSCHED_DEMO_POSTGRES names; a busier example would keep a pool."""
    return psycopg.connect(os.environ["RZSCHED_DEMO_POSTGRES"], connect_timeout=CONNECT_S)


@asynccontextmanager
async def tables() -> AsyncIterator[None]:
    """Make the tables, once in each worker process."""
    with connect() as database:
        # Two workers that start together would both find no table, and one would fail to make it.
        database.execute("SELECT pg_advisory_xact_lock(hashtext('rzsched.demo.postgres'))")
        database.execute(SCHEMA)
    yield


app = App(name="demo-postgres", lifespan=tables)


@app.task(name=customers.TASK, queue=customers.QUEUE, max_retries=20, backoff=BACKOFF)
def invoice(ctx: Context, customer_id: str, period: str) -> str:
    """Write one invoice; give what became of it. A database that is away raises, and the job is retried."""
    customer = customers.load()[customer_id]
    amount = customers.amount_due(customer)
    if customer.is_large:
        ctx.progress(0.5, "rendering")
        time.sleep(RENDER_S)
    return write(ctx, customer_id, period, amount, customer.currency)


def write(ctx: Context, customer_id: str, period: str, amount: Decimal, currency: str) -> str:
    """Write the invoice and the record of this run in one transaction."""
    said = {"customer": customer_id, "period": period, "amount": amount, "currency": currency,
            "execution": ctx.execution_id, "fence": ctx.fence, "attempt": ctx.attempt, "pid": os.getpid()}  # fmt: skip
    with connect() as database:  # commits at the end, or rolls all of it back
        written = database.execute(WRITE, said).rowcount == 1
        outcome = "written" if written else "refused"
        database.execute(RECORD, said | {"outcome": outcome})
    return outcome
