"""The shop's code before a deploy; `tests.deploy_v2` is the code after it."""

import asyncio

from rzsched import App, Context
from tests.tasks_app import write_ledger

app = App(name="shop")


@app.task
async def steady(ctx: Context, seconds: float = 0.0) -> None:
    write_ledger(ctx)
    await asyncio.sleep(seconds)
    write_ledger(ctx, "end")


@app.task
def send_mail(ctx: Context) -> None:
    write_ledger(ctx)
    write_ledger(ctx, "end")


@app.cron(every=1, id="tick", misfire="all", overlap="allow")
@app.task
async def tick(ctx: Context) -> None:
    write_ledger(ctx, f"tick v1 {ctx.scheduled_for.timestamp() if ctx.scheduled_for else ''}")
