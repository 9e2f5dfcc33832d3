"""The tasks of the chaos run: each run leaves lines in a ledger outside Redis, which SIGKILL spares."""

import asyncio
import json
import os
import time
from typing import Any

from bench.ledger import RUNS, Ledger
from rzsched import App, Backoff, Context

QUICK = Backoff(base=0.3, factor=1.5, max=2, jitter=0.2)
MOST_RETRIES = 200
"""A crash costs an attempt; no job may die because it was near many."""
RETENTION_S = 10
app = App(name="chaos")


class Refused(Exception):
    """A failure by design."""


def note(ctx: Context, event: str, key: str = "") -> None:
    """Write one line of the ledger. The monotonic clock is one for all processes of a machine."""
    nominal = None if ctx.scheduled_for is None else ctx.scheduled_for.timestamp()
    told: dict[str, Any] = {
        "event": event, "job": ctx.job_id, "execution": ctx.execution_id, "attempt": ctx.attempt, "fence": ctx.fence,
        "pid": os.getpid(), "at": time.monotonic(), "wall": time.time(), "nominal": nominal, "key": key,
    }  # fmt: skip
    Ledger.of_environment(RUNS).write(json.dumps(told))


@app.task(max_retries=MOST_RETRIES, backoff=QUICK, retention=RETENTION_S)
async def work(ctx: Context, seconds: float = 0.0, fails: int = 0, key: str = "") -> None:
    """Take a while; fail in the first `fails` attempts."""
    note(ctx, "start", key)
    if seconds:
        await asyncio.sleep(seconds)
    if ctx.attempt <= fails:
        note(ctx, "failed", key)
        raise Refused
    note(ctx, "end", key)


@app.task(max_retries=MOST_RETRIES, backoff=QUICK, retention=RETENTION_S)
def work_plain(ctx: Context, seconds: float = 0.0, key: str = "") -> None:
    """Take a while on a thread."""
    note(ctx, "start", key)
    if seconds:
        time.sleep(seconds)
    note(ctx, "end", key)


@app.task(max_retries=MOST_RETRIES, backoff=QUICK, retention=RETENTION_S)
async def tick(ctx: Context, seconds: float = 0.0) -> None:
    """Run one occurrence of a schedule."""
    note(ctx, "start")
    if seconds:
        await asyncio.sleep(seconds)
    note(ctx, "end")
