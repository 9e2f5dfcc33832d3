"""Dead jobs: list, show, replay, purge."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from rzsched.answers import DeadJob, Refusals
from rzsched.cli.context import Session, json_option, pass_session, payload_option
from rzsched.cli.failures import FAILED, warn
from rzsched.cli.jobs import arguments
from rzsched.cli.output import print_facts, print_json, print_table, record
from rzsched.client import Client
from rzsched.listing import find_dead

_PAGE = 1000


@click.group()
def dead() -> None:
    """Look after the jobs that gave up."""


@dead.command("list")
@click.argument("queue")
@click.option("--count", type=int, default=100, show_default=True, help="List at most so many, oldest first.")
@click.option("--after", metavar="ENTRY", help="Go on after this entry.")
@click.option("--all", is_flag=True, help="List them all.")
@json_option
@pass_session
def list_(session: Session, queue: str, count: int, after: str | None, all: bool, json: bool) -> None:
    """List dead jobs, oldest first. An entry without a job is named by its stream id."""
    with session.client() as client:
        found = list(_pages(client, queue, after)) if all else client.list_dead(queue, count, after=after)
    if json:
        return print_json([record(job, "raw") for job in found])
    rows = [[job.id, job.task, job.attempts, job.died_at, job.error] for job in found]
    print_table(["JOB", "TASK", "ATTEMPTS", "DIED", "ERROR"], rows)
    if not all and len(found) == count:
        warn(f"there may be more: go on with --after {found[-1].entry}, or list them --all")


def _pages(client: Client, queue: str, after: str | None) -> Iterator[DeadJob]:
    while True:
        page = client.list_dead(queue, _PAGE, after=after)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].entry


@dead.command()
@click.argument("queue")
@click.argument("job_id")
@payload_option
@json_option
@pass_session
def show(session: Session, queue: str, job_id: str, payload: bool, json: bool) -> None:
    """Show a dead job."""
    with session.client() as client:
        found = client.run(find_dead(client.space, queue, job_id))
        facts = record(found, "raw")
        if found.id != found.entry:
            status = client.get_job_status(job_id)
            facts |= {name: getattr(status, name) for name in _TOLD}
            facts |= arguments(status.payload) if payload else {}
        elif payload:
            facts["raw"] = {key.decode("utf-8", "backslashreplace"): value for key, value in found.raw.items()}
    if json:
        print_json(facts)
    else:
        print_facts({name: value for name, value in facts.items() if value is not None})


_TOLD = ("max_retries", "replays", "priority", "idempotency_key", "created_at", "started_at", "schedule_id")


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what `replay` and `purge` take: job ids, or --all."""
    command = click.option("--all", is_flag=True, help="All dead jobs of the queue.")(command)
    command = click.argument("job_ids", metavar="[JOB_ID]...", nargs=-1)(command)
    return click.argument("queue")(command)


def _ids(job_ids: Sequence[str], everything: bool) -> list[str] | None:
    if bool(job_ids) == everything:
        raise click.UsageError("name the jobs, or say --all", click.get_current_context())
    return None if everything else list(job_ids)


@dead.command()
@_chosen
@json_option
@pass_session
def replay(session: Session, queue: str, job_ids: tuple[str, ...], all: bool, json: bool) -> None:
    """Put dead jobs back to work, their payload and id kept.

    One whose idempotency key another job holds by now stays dead, and the exit code is 1. Replaying all may be
    interrupted and repeated.
    """
    ids = _ids(job_ids, all)
    with session.client() as client:
        _report(client.replay_dead(queue, ids), "replayed", json)


@dead.command()
@_chosen
@json_option
@pass_session
def purge(session: Session, queue: str, job_ids: tuple[str, ...], all: bool, json: bool) -> None:
    """Delete dead jobs for good."""
    ids = _ids(job_ids, all)
    with session.client() as client:
        _report(client.purge_dead(queue, ids), "purged", json)


def _report(taken: Refusals, done: str, json: bool) -> None:
    if json:
        print_json({done: int(taken), "refused": taken.refused})
    else:
        click.echo(f"{int(taken)} {done}")
    for job_id, why in taken.refused.items():
        warn(f"{job_id} is not {done}: {_WHY.get(why, f'its idempotency key is held by job {why}')}")
    if taken.refused:
        click.get_current_context().exit(FAILED)


_WHY = {"NO_RECORD": "there is no job behind this entry: purge it", "NOT_FOUND": "it is not dead any more"}
