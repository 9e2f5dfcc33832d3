"""The `rzsched` command: what holds for all of its commands, and the list of them."""

import logging
from typing import Any

import click

from rzsched import __version__
from rzsched.cli import crons, dead, doctor, enqueue, jobs, limits, queues, running
from rzsched.cli.context import Session
from rzsched.cli.failures import RootGroup
from rzsched.cli.logs import set_up
from rzsched.cli.output import JSON_HELP
from rzsched.names import check_namespace

_EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 server unreachable. Every option of a command is also "
    "RZSCHED_<COMMAND>_<OPTION>. Durations are seconds, or 500ms, 30s, 5m, 2h, 1d. Write -- before a name that begins "
    f"with a dash. {JSON_HELP}"
)


@click.group(
    cls=RootGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "RZSCHED",
        "max_content_width": 110,
    },
    epilog=_EPILOG,
)
@click.option("--url", metavar="URL", help="Server: redis://host:port/db, redis+sentinel://host,host/service or "
              "embedded:///folder; also $RZSCHED_URL (which keeps a password out of the process list). Default: "
              "redis://localhost:6379/0.")
@click.option("--namespace", metavar="NS", help='First part of all keys, also $RZSCHED_NAMESPACE. Default: "rz".')
@click.option("-v", "--verbose", is_flag=True, envvar=["RZSCHED_DEBUG", "RZSCHED_VERBOSE"],
              help="Say more; show tracebacks.")
@click.version_option(__version__, prog_name="rzsched", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, url: str | None, namespace: str | None, verbose: bool) -> None:
    """Schedule jobs on Redis, run them, and look after them."""
    ctx.obj = Session(url, None if namespace is None else check_namespace(namespace), verbose)
    set_up(logging.INFO if verbose else logging.WARNING, verbose=verbose)


_COMMANDS: tuple[Any, ...] = (
    running.worker,
    running.scheduler,
    running.demo,
    enqueue.enqueue,
    jobs.status,
    jobs.cancel,
    jobs.wait,
    limits.pause,
    limits.resume,
    limits.configure,
    queues.queues,
    queues.jobs,
    queues.workers,
    dead.dead,
    crons.cron,
    doctor.doctor,
)
for command in _COMMANDS:
    cli.add_command(command)
