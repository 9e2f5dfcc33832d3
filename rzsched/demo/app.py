"""The demo's App: `billing.invoice` writes a customer's invoice of one month into the books.

It is a handler as one would write it for real, with two troubles built in: a mail gateway that turns some down at
first, and large invoices that take a while to render. `rzsched worker rzsched.demo.app:app` runs it anywhere;
$RZSCHED_DEMO_BOOKS says where the books are.
"""

import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rzsched import App, Backoff, Context
from rzsched.demo import customers
from rzsched.demo.customers import Customer
from rzsched.demo.ledger import Attempt, Books, Invoice

RENDER_S = 1.5


@asynccontextmanager
async def open_books() -> AsyncIterator[Books]:
    """Open the books once for each worker process; handlers find them as `ctx.state`."""
    books = Books(os.environ.get("RZSCHED_DEMO_BOOKS") or Path(tempfile.gettempdir()) / "rzsched-demo-books.sqlite3")
    try:
        yield books
    finally:
        books.close()


app = App(name="demo", lifespan=open_books)


class MailRefused(Exception):
    """The mail gateway asks to try again later."""


BACKOFF = Backoff(base=0.2, factor=2, max=2, jitter=0.2)


@app.task(name=customers.TASK, queue=customers.QUEUE, max_retries=2, backoff=BACKOFF)
def invoice(ctx: Context, customer_id: str, period: str) -> str:
    """Write one invoice; give what became of it."""
    run = _run_of(ctx, customer_id)
    books: Books = ctx.state
    books.begin(run)
    try:
        customer = customers.load()[customer_id]
        amount = customers.amount_due(customer)
        _render(customer)
        _mail(customer, ctx.attempt)
    except Exception:
        books.fail(run)
        raise
    # It does not look at `ctx.lost`, which would spare the work: the demo shows that the fence alone is enough.
    taken = books.write(run, Invoice(customer_id, period, amount, customer.currency))
    return f"{amount} {customer.currency}" if taken else "refused: a newer run has written it"


def _run_of(ctx: Context, customer_id: str) -> Attempt:
    due_at = None if ctx.due_at is None else ctx.due_at.timestamp()
    return Attempt(ctx.job_id, ctx.attempt, ctx.fence, customer_id, os.getpid(), due_at, time.time())


def _render(customer: Customer) -> None:
    if customer.is_large:
        time.sleep(RENDER_S)


def _mail(customer: Customer, attempt: int) -> None:
    if customer.mail_fails_first and attempt == 1:
        raise MailRefused("451 4.7.1 greylisted, try again later")
