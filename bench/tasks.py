"""The tasks that the measurements run; a worker process loads them as `bench.tasks:app`."""

import time

from bench.ledger import RUNS, Ledger
from rzsched import App, Context

app = App(name="bench")


@app.task
async def nothing() -> None:
    """Cost nothing, so that only the scheduling is measured."""


@app.task
def nothing_plain() -> None:
    """Cost nothing, on a thread."""


@app.task
async def stamp() -> int:
    """Give the instant at which the handler started, in ns since the epoch."""
    return time.time_ns()


@app.task
async def record(ctx: Context) -> None:
    """Leave a line outside Redis for each run."""
    Ledger.of_environment(RUNS).write(ctx.job_id)
