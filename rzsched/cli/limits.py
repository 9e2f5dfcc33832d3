"""Limits of a queue: pause, resume, configure."""

import click

from rzsched.cli.context import Session, pass_session
from rzsched.cli.parsing import LIMIT, RATE


@click.command()
@click.argument("queue")
@pass_session
def pause(session: Session, queue: str) -> None:
    """Start no more jobs of a queue. Running ones end, and scheduling goes on."""
    with session.client() as client:
        client.pause(queue)
    click.echo("paused")


@click.command()
@click.argument("queue")
@pass_session
def resume(session: Session, queue: str) -> None:
    """Start jobs of a paused queue again."""
    with session.client() as client:
        client.resume(queue)
    click.echo("resumed")


@click.command()
@click.argument("queue")
@click.option("--concurrency", type=LIMIT, help="Most jobs running at once, over all workers.")
@click.option("--rate", type=RATE, help="Most jobs started in any such time, as 2/1 or 100/1m.")
@click.option("--partitions", type=int, help="Parts that it is spread over; may grow while in use, never shrink.")
@pass_session
def configure(session: Session, queue: str, concurrency: int | None, rate: tuple[int, float] | None,
              partitions: int | None) -> None:
    """Limit a queue over all of its workers; 0 or none removes a limit, what is not named stays."""
    if concurrency is None and rate is None and partitions is None:
        message = "name a limit, or what else to set: --concurrency, --rate or --partitions"
        raise click.UsageError(message, click.get_current_context())
    with session.client() as client:
        client.configure_queue(queue, concurrency=concurrency, rate=rate, partitions=partitions)
    click.echo("configured")
