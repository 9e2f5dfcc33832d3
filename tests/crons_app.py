"""An App whose schedules a test chooses: $RZSCHED_TEST_CRONS is a JSON list of what `@app.cron` takes."""

import asyncio
import json
import os
import time

from rzsched import App, Backoff, Context

app = App(name=os.environ.get("RZSCHED_TEST_APP", "app"))


def write_ledger(ctx: Context, event: str = "run") -> None:
    told = {
        "event": event, "job": ctx.job_id, "task": ctx.task, "attempt": ctx.attempt, "pid": os.getpid(),
        "time": time.time(), "scheduled_for": None if ctx.scheduled_for is None else ctx.scheduled_for.timestamp(),
    }  # fmt: skip
    with open(os.environ["RZSCHED_TEST_LEDGER"], "a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(told) + "\n")


@app.task(max_retries=0, retention=60)
async def tick(ctx: Context) -> None:
    write_ledger(ctx)


@app.task(max_retries=0, backoff=Backoff(base=0.1, factor=1, jitter=0))
async def fail(ctx: Context) -> None:
    write_ledger(ctx)
    if os.environ.get("RZSCHED_TEST_FIXED") != "1":
        raise ValueError("not fixed yet")


@app.task
async def long(ctx: Context, seconds: float = 3) -> None:
    write_ledger(ctx, "began")
    await asyncio.sleep(seconds)
    write_ledger(ctx)


for said in json.loads(os.environ.get("RZSCHED_TEST_CRONS", "[]")):
    task = app.tasks[said.pop("task", "tick")]
    app.cron(**said)(task)
