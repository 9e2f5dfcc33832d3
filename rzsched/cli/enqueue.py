"""Enqueue jobs: one from the command line, or many from a file."""

from typing import Any, get_args

import click

from rzsched.cli.bulk import enqueue_file
from rzsched.cli.context import Session, json_option, pass_session
from rzsched.cli.failures import warn
from rzsched.cli.output import print_json
from rzsched.cli.parsing import DURATION, INSTANT, JSON
from rzsched.config import Durability


@click.command()
@click.argument("task", required=False)
@click.option("--args", type=JSON, help="Arguments, a JSON array.")
@click.option("--kwargs", type=JSON, help="Keyword arguments, a JSON object.")
@click.option("--at", type=INSTANT, help="When it is due, as 2026-11-29T12:00:00+06:00.")
@click.option("--delay", type=DURATION, help="How long until it is due.")
@click.option("-q", "--queue", metavar="NAME", help='Default: "default".')
@click.option("--priority", type=int, help="0 (first) to 9. Default: 5.")
@click.option("--idempotency-key", metavar="KEY", help="Make no second job while a job has this key.")
@click.option("--idempotency-ttl", type=DURATION, help="How long the key stays taken after success. Default: 1d.")
@click.option("--max-retries", type=int, help="Retries after the first attempt. Default: the task's, or 3.")
@click.option("--timeout", type=DURATION, help="How long one attempt may take.")
@click.option("--expires", type=DURATION, help="Cancel it where it has not started so long after it was due.")
@click.option("--retention", type=DURATION, help="How long it is kept once it ended. Default: the task's, or 1h.")
@click.option("--concurrency-key", metavar="KEY", help="Run at most --concurrency-limit jobs of this key at once.")
@click.option("--concurrency-limit", type=int, help="Default: 1.")
@click.option("--durability", type=click.Choice(get_args(Durability)),
              help="What to wait for: memory, a replica, or the append-only file. Default: memory.")
@click.option("--file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True),
              help="Enqueue many: one JSON object a line, - for stdin.")
@click.option("-v", "--verbose", is_flag=True, help="With --file: print the ids.")
@json_option
@pass_session
def enqueue(session: Session, /, task: str | None, file: str | None, verbose: bool, json: bool, **said: Any) -> None:
    """Enqueue a job of TASK and print its id, or those of a file and print how many.

    A line of the file is {"task": ..., "args": [...], "kwargs": {...}, ...}. Its further keys are this command's
    options with _ for -; "at" may be epoch seconds too, durations are seconds, "backoff" is an object with base,
    factor, max and jitter. Options hold for the lines that do not say otherwise. A file is checked whole before
    anything is written; stdin is read and written in chunks.
    """
    said["run_at"] = said.pop("at")
    options = {name: value for name, value in said.items() if value is not None}
    if file is not None:
        _refuse_for_file(task, options)
        durability = options.pop("durability", None)
        return enqueue_file(session, file, options, durability, show_ids=verbose or session.verbose, json=json)
    if task is None:
        raise click.UsageError("name a TASK, or a --file", click.get_current_context())
    with session.client() as client:
        job_id = client.schedule_job(task, **options)
    if json:
        return print_json({"id": job_id, "created": job_id.created})
    click.echo(job_id)
    if not job_id.created:
        warn("no new job: its idempotency key is that of this one")


def _refuse_for_file(task: str | None, options: dict[str, Any]) -> None:
    own = [f"--{name.replace('_', '-')}" for name in ("args", "kwargs", "idempotency_key") if name in options]
    if task is not None or own:
        what = "a TASK" if task is not None else own[0]
        raise click.UsageError(f"with --file each line names its own: leave out {what}", click.get_current_context())


