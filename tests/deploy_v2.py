"""The shop's code after a deploy: a task more, one renamed (its old name still served), a changed schedule."""

import asyncio

from rzsched import App, Context
from tests.tasks_app import write_ledger

app = App(name="shop")


@app.task
async def steady(ctx: Context, seconds: float = 0.0) -> None:
    write_ledger(ctx)
    await asyncio.sleep(seconds)
    write_ledger(ctx, "end")


@app.task(name="mail.send")
def send(ctx: Context) -> None:
    write_ledger(ctx)
    write_ledger(ctx, "end")


@app.task(name="send_mail")
def send_mail(ctx: Context) -> None:
    """Serve what was scheduled under the old name; the deploy after this one removes it."""
    send(ctx)


@app.task
async def added(ctx: Context) -> None:
    write_ledger(ctx)
    write_ledger(ctx, "end")


@app.cron("*/2 * * * * *", id="tick", misfire="all", overlap="allow")
@app.task
async def tick(ctx: Context) -> None:
    write_ledger(ctx, f"tick v2 {ctx.scheduled_for.timestamp() if ctx.scheduled_for else ''}")
