"""What runs until it is told to stop: worker, scheduler; and the demo."""

import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from rzsched.cli.context import Session, json_option, pass_session
from rzsched.cli.failures import FAILED, Failure
from rzsched.cli.logs import set_up
from rzsched.cli.parsing import DURATION, WEIGHTED
from rzsched.config import DEFAULT_NAMESPACE, DEFAULT_URL, SchedulerSettings, WorkerSettings
from rzsched.names import check_queue

_DEFAULTS = WorkerSettings()


def _start_logging(session: Session, verbose: bool) -> None:
    session.verbose = session.verbose or verbose
    set_up(logging.INFO, verbose=session.verbose)


def _no_doubles(queues: Sequence[str]) -> None:
    for queue in queues:
        if queues.count(queue) > 1:
            raise ValueError(f"queue {queue!r} is named twice")


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("-q", "--queues", type=WEIGHTED, multiple=True, default=["default"], show_default=True,
              help="Take jobs from this queue, with this weight; may be said again.")
@click.option("-c", "--concurrency", type=int, default=_DEFAULTS.concurrency, show_default=True,
              help="Most jobs running at once in each process.")
@click.option("-w", "--processes", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--lease", type=DURATION, default=_DEFAULTS.lease_s, show_default=True,
              help="How long a worker that has gone silent keeps its jobs.")
@click.option("--shutdown-timeout", type=DURATION, default=_DEFAULTS.shutdown_timeout_s, show_default=True,
              help="How long running jobs may go on when the worker is told to stop.")
@click.option("--unknown-grace", type=DURATION, default=_DEFAULTS.unknown_grace_s, show_default=True,
              help="How long a job whose task is unknown here is handed on before it counts as dead.")
@click.option("-b", "--burst", is_flag=True, help="End when nothing is due or running.")
@click.option("-r", "--reload", is_flag=True, help="Start again when the code changes.")
@click.option("--no-scheduler", is_flag=True, help="Run jobs only: another process moves due jobs.")
@click.option("--no-wait", is_flag=True, help="Exit with code 4 when the server is away, instead of waiting.")
@click.option("--supervised", hidden=True, help="The id that the supervisor has given this process.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@pass_session
def worker(session: Session, /, target: str, queues: tuple[tuple[str, int], ...], processes: int, reload: bool,
           verbose: bool, supervised: str | None, **said: Any) -> None:
    """Run jobs of the App that MODULE:APP names, with a scheduler inside.

    SIGTERM or Ctrl-C: take no more jobs, let the running ones end, hand the rest back unharmed. A second one: now.
    """
    _start_logging(session, verbose)
    _no_doubles([name for name, _ in queues])
    settings = WorkerSettings(
        queues=queues,
        concurrency=said["concurrency"],
        lease_s=said["lease"],
        shutdown_timeout_s=said["shutdown_timeout"],
        unknown_grace_s=said["unknown_grace"],
        burst=said["burst"],
        scheduler=not said["no_scheduler"],
        wait_for_server=not said["no_wait"],
    )
    from rzsched.cli.loading import load_app

    try:
        app = load_app(target, session.url, session.namespace)
    except Failure as error:
        if supervised is not None and error.code == FAILED:
            from rzsched.supervisor import NOT_LOADED

            error.code = NOT_LOADED  # the parent must know it from a worker that failed later
        raise
    if processes > 1 or reload:
        from rzsched.supervisor import supervise

        sys.exit(supervise(app, target, settings, processes=processes, reload=reload, verbose=session.verbose))
    from rzsched.supervisor import stop_with_parent
    from rzsched.worker import run_worker

    if supervised is not None:
        stop_with_parent()
    sys.exit(run_worker(app, settings, supervised))


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("-q", "--queues", multiple=True, help="Serve this queue only; may be said again. Default: all there are.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@pass_session
def scheduler(session: Session, target: str | None, queues: tuple[str, ...], verbose: bool) -> None:
    """Move due jobs and fire schedules, but run nothing. Any number may run."""
    _start_logging(session, verbose)
    _no_doubles(queues)
    settings = SchedulerSettings(queues=tuple(check_queue(queue) for queue in queues) or None)
    url, namespace = session.url or DEFAULT_URL, session.namespace or DEFAULT_NAMESPACE
    before = None
    if target is not None:
        from rzsched.cli.loading import load_app

        app = load_app(target, session.url, session.namespace)
        url, namespace = app.url, app.namespace
        from rzsched.declaring import declare_and_leave

        before = partial(declare_and_leave, app)
    from rzsched.scheduler_hosts import run_scheduler

    sys.exit(run_scheduler(url, namespace, settings, before))


@click.command()
@click.option("--keep", is_flag=True, help="Keep the data, and say how to look at it.")
@click.option("--folder", type=click.Path(file_okay=False), help="Put the data into this empty folder, and keep it.")
@json_option
@pass_session
def demo(session: Session, keep: bool, folder: str | None, json: bool) -> None:
    """Show the main job with nothing installed but this package, in about 15 seconds.

    Starts a server and two workers of its own, whatever --url says, bills 200 customers, kills one worker and
    pauses another. Exit code 1 if the books don't balance.
    """
    from rzsched.demo import run

    sys.exit(run(folder=folder, keep=keep, as_json=json))
