"""What there is: queues, the jobs of one, workers."""

import click

from rzsched.answers import QueueStats
from rzsched.cli.context import Session, json_option, pass_session
from rzsched.cli.failures import warn
from rzsched.cli.output import print_json, print_table, record
from rzsched.job import State
from rzsched.listing import ListedJob, list_jobs

_COUNTED = ("scheduled", "ready", "running", "dead", "succeeded", "failed", "cancelled")


@click.command()
@json_option
@pass_session
def queues(session: Session, json: bool) -> None:
    """Count what every queue holds; OLDEST is how many seconds the job longest ready has waited."""
    with session.client() as client:
        found = client.queues()
    if json:
        return print_json([record(stats) for stats in found])
    rows = [
        [stats.queue, *(getattr(stats, name) for name in _COUNTED), stats.oldest_ready_age, *_limits(stats)]
        for stats in found
    ]
    print_table(["QUEUE", *(name.upper() for name in _COUNTED), "OLDEST", "PAUSED", "CONCURRENCY", "RATE"], rows)


def _limits(stats: QueueStats) -> list[object]:
    return [stats.paused, stats.concurrency, stats.rate and f"{stats.rate[0]}/{stats.rate[1]:g}s"]


@click.command()
@click.argument("queue")
@click.option("--state", required=True, type=click.Choice([state.value for state in State], case_sensitive=False))
@click.option("--count", type=int, default=100, show_default=True, help="List at most so many.")
@json_option
@pass_session
def jobs(session: Session, queue: str, state: str, count: int, json: bool) -> None:
    """List the jobs of a queue that are in one state.

    The next due come first, of those that ended the newest. SUCCEEDED and CANCELLED jobs are searched for among at
    most a million keys.
    """
    with session.client() as client:
        listing = client.run(list_jobs(client.space, queue, State(state.upper()), count))
    if not listing.complete:
        warn("there are too many keys to look at all of them: there may be more such jobs")
    if json:
        return print_json([record(job) for job in listing.jobs])
    print_table(["JOB", "TASK", "ATTEMPTS", "PRIORITY", "WHEN", "WORKER", "ERROR"], [_row(job) for job in listing.jobs])


def _row(job: ListedJob) -> list[object]:
    when = {State.PENDING: job.next_run_at, State.FAILED: job.next_run_at, State.RUNNING: job.started_at}
    return [job.id, job.task, job.attempts, job.priority, when.get(job.state, job.finished_at), job.worker,
            job.last_error]  # fmt: skip


@click.command()
@json_option
@pass_session
def workers(session: Session, json: bool) -> None:
    """List the workers that are alive."""
    with session.client() as client:
        found = client.workers()
    if json:
        return print_json([record(worker) for worker in found])
    rows = [
        [worker.id, worker.host, worker.pid, worker.running, worker.concurrency, ",".join(worker.queues),
         worker.started_at]
        for worker in found
    ]  # fmt: skip
    print_table(["WORKER", "HOST", "PID", "RUNNING", "CONCURRENCY", "QUEUES", "SINCE"], rows)
