"""One job: status, cancel, wait."""

from typing import Any

import click

from rzsched.cli.context import Session, json_option, pass_session, payload_option
from rzsched.cli.failures import FAILED, Failure
from rzsched.cli.output import dump, print_facts, print_json, record
from rzsched.cli.parsing import DURATION
from rzsched.codec import decode_payload
from rzsched.errors import PayloadError
from rzsched.job import JobStatus


def read_status(session: Session, job_id: str) -> JobStatus:
    try:
        with session.client() as client:
            return client.get_job_status(job_id)
    except PayloadError as error:  # what is stored is at fault, not the command
        raise Failure(f"job {job_id}: its stored {error}") from error


def facts_of(status: JobStatus, payload: bool) -> dict[str, Any]:
    """Give what a status says; the arguments only where they were asked for."""
    facts = record(status, "payload")
    if payload:
        facts |= arguments(status.payload)
    return facts


def arguments(payload: bytes) -> dict[str, Any]:
    """Give a payload as `args` and `kwargs`, or as its bytes where it cannot be decoded."""
    try:
        args, kwargs = decode_payload(payload)
    except PayloadError:
        return {"payload": payload}
    return {"args": args, "kwargs": kwargs}


@click.command()
@click.argument("job_id")
@payload_option
@json_option
@pass_session
def status(session: Session, job_id: str, payload: bool, json: bool) -> None:
    """Show a job."""
    facts = facts_of(read_status(session, job_id), payload)
    if json:
        print_json(facts)
    else:
        print_facts({name: value for name, value in facts.items() if value is not None})


@click.command()
@click.argument("job_id")
@pass_session
def cancel(session: Session, job_id: str) -> None:
    """Cancel a job: a waiting one ends now, a running one is asked to stop.

    Exit code 1 where the job had ended already.
    """
    with session.client() as client:
        if not client.cancel_job(job_id):
            raise Failure(f"job {job_id} had already ended", FAILED)
    click.echo("cancelled")


@click.command()
@click.argument("job_id")
@click.option("--timeout", type=DURATION, help="Give up after this long, with exit code 1.")
@click.option("--json", is_flag=True, help="No more than the usual: the result is JSON anyway.")
@pass_session
def wait(session: Session, job_id: str, timeout: float | None, json: bool) -> None:
    """Wait for a job to end, and print its result as JSON.

    Exit code 1 where it ended dead or was cancelled; stderr says why.
    """
    with session.client() as client:
        try:
            result = client.wait(job_id, timeout)
        except PayloadError as error:
            raise Failure(f"job {job_id}: its stored {error}") from error
    click.echo(dump(result))
