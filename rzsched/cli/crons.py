"""Schedules: list, show, add, pause, resume, trigger, remove, and the coming instants of an expression."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from rzsched.cli.context import Session, json_option, pass_session, payload_option
from rzsched.cli.jobs import arguments
from rzsched.cli.output import print_facts, print_json, print_table, record
from rzsched.cli.parsing import DURATION, INSTANT, JSON
from rzsched.cron import parse_cron
from rzsched.cron_answers import CronStatus
from rzsched.job import instant
from rzsched.schedule import MISFIRES, OVERLAPS

_HIDDEN = ("payload", "timing", "fingerprint")


@click.group()
def cron() -> None:
    """Look after schedules."""


def _facts(found: CronStatus, *without: str) -> dict[str, Any]:
    facts = record(found, *_HIDDEN, *without)
    if "history" in facts:
        facts["history"] = [record(run) for run in found.history]
    return facts


def _expression(found: CronStatus) -> str:
    return found.cron if found.cron is not None else f"every {found.every:g} s"


@cron.command("list")
@json_option
@pass_session
def list_(session: Session, json: bool) -> None:
    """List all schedules."""
    with session.client() as client:
        found = client.list_crons()
    if json:
        return print_json([_facts(each, "history") for each in found])
    rows = [
        [each.id, each.task, _expression(each), each.tz, each.words, each.last, each.next_run_at, each.overlap,
         each.misfire, each.fired, each.missed, each.skipped, each.paused, each.owner]
        for each in found
    ]  # fmt: skip
    print_table(["ID", "TASK", "WHEN", "ZONE", "IN WORDS", "LAST", "NEXT", "OVERLAP", "MISFIRE", "FIRED", "MISSED",
                 "SKIPPED", "PAUSED", "OWNER"], rows)


@cron.command()
@click.argument("id")
@payload_option
@json_option
@pass_session
def show(session: Session, id: str, payload: bool, json: bool) -> None:
    """Show a schedule with its next 10 instants, and its last 10 with what became of them."""
    with session.client() as client:
        found = client.get_cron(id)
    facts = _facts(found) | (arguments(found.payload) if payload else {})
    after = found.next_run_at or datetime.now(UTC)
    coming = found.coming(10, int(after.timestamp() * 1000) - 1)
    if json:
        return print_json(facts | {"coming": coming})
    runs = facts.pop("history")
    print_facts({name: value for name, value in facts.items() if value not in (None, {})})
    _print_times("coming", [[at] for at in coming])
    _print_times("last", [[run["scheduled_for"], run["outcome"]] for run in runs])


def _print_times(head: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        click.echo()
        print_table([head.upper(), "OUTCOME"][: len(rows[0])], rows)


@cron.command()
@click.argument("task")
@click.option("--cron", metavar="EXPR", help="Five fields, or six with seconds first.")
@click.option("--every", type=DURATION, help="An interval instead, counted from --start, else from the epoch.")
@click.option("--id", metavar="ID", help="Default: the task's name. One that exists is changed.")
@click.option("--tz", metavar="ZONE", help="Default: UTC.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="Where the last one has not ended. Default: skip.")
@click.option("--misfire", type=click.Choice(MISFIRES), help="Where instants were missed. Default: once.")
@click.option("--misfire-limit", type=int, help="Most missed instants that run, for all. Default: 100.")
@click.option("--misfire-window", type=DURATION, help="How far back a missed instant may run.")
@click.option("--jitter", type=DURATION, help="Spread the starts over so long.")
@click.option("--start", type=INSTANT, help="No instant before it.")
@click.option("--end", type=INSTANT, help="No instant after it.")
@click.option("--dst-gap", type=click.Choice(["after", "skip"]), help="Fixed times that a clock change skips.")
@click.option("--dst-fold", type=click.Choice(["first", "both"]), help="Fixed times that a clock change repeats.")
@click.option("--args", type=JSON, help="Arguments, a JSON array.")
@click.option("--kwargs", type=JSON, help="Keyword arguments, a JSON object.")
@click.option("-q", "--queue", metavar="NAME", help='Default: "default".')
@click.option("--priority", type=int, help="0 (first) to 9. Default: 5.")
@click.option("--max-retries", type=int, help="Retries after the first attempt. Default: the task's, or 3.")
@click.option("--timeout", type=DURATION, help="How long one attempt may take.")
@click.option("--expires", type=DURATION, help="Cancel a job that has not started so long after it was due.")
@click.option("--retention", type=DURATION, help="How long a job is kept once it ended. Default: the task's, or 1h.")
@click.option("--concurrency-key", metavar="KEY", help="Run at most --concurrency-limit jobs of this key at once.")
@click.option("--concurrency-limit", type=int, help="Default: 1.")
@json_option
@pass_session
def add(session: Session, /, task: str, json: bool, **said: Any) -> None:
    """Register a schedule for TASK, or change it, and print its id."""
    with session.client() as client:
        schedule_id = client.schedule_cron(task, **{name: value for name, value in said.items() if value is not None})
        found = client.get_cron(schedule_id)
    if json:
        return print_json(_facts(found))
    click.echo(schedule_id)


def _verb(name: str, help: str, done: str) -> None:
    @cron.command(name, help=help)
    @click.argument("ids", metavar="ID...", nargs=-1, required=True)
    @json_option
    @pass_session
    def command(session: Session, ids: tuple[str, ...], json: bool) -> None:
        with session.client() as client:
            results = {each: getattr(client, f"{name}_cron")(each) for each in ids}
        if json:
            return print_json([{"id": each, done: result or True} for each, result in results.items()])
        for each, result in results.items():
            click.echo(result or f"{each} {done}")


_verb("pause", "Stop schedules from firing until they are resumed.", "paused")
_verb("resume", "Let paused schedules go on; what fell into the pause is not run.", "resumed")
_verb("trigger", "Run schedules now, beside their plan, and print the job ids.", "triggered")
_verb("remove", "Remove schedules, with their occurrences that have not begun. What code declares comes back when "
      "a worker of that code starts.", "removed")


@cron.command()
@click.argument("id")
@click.option("--start", type=INSTANT, required=True, help="The first instant of the range.")
@click.option("--end", type=INSTANT, required=True, help="The last one; not in the future.")
@json_option
@pass_session
def backfill(session: Session, id: str, start: datetime, end: datetime, json: bool) -> None:
    """Run the occurrences of a range of the past, both ends included, and print the job ids."""
    with session.client() as client:
        found = client.backfill_cron(id, start, end)
    if json:
        return print_json(found)
    for job_id in found:
        click.echo(job_id)


@cron.command("next")
@click.argument("expression", metavar="EXPR")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True)
@click.option("--after", type=INSTANT, help="Begin strictly after it. Default: now.")
@click.option("-n", "--count", type=click.IntRange(1, 10_000), default=5, show_default=True)
@click.option("--dst-gap", default="after", show_default=True, help="after or skip.")
@click.option("--dst-fold", default="first", show_default=True, help="first or both.")
@json_option
@pass_session
def next_(session: Session, /, expression: str, tz: str, after: datetime | None, count: int, dst_gap: str,
          dst_fold: str, json: bool) -> None:
    """Print the coming instants of an expression, one a line, in its zone. No server is needed."""
    schedule = parse_cron(expression, tz, dst_gap, dst_fold)
    begin = after or datetime.now(UTC)
    found = [at.astimezone(ZoneInfo(tz)) for at in _coming(schedule.iterate(int(begin.timestamp() * 1000)), count)]
    if json:
        return print_json(found)
    for at in found:
        click.echo(at.isoformat())


def _coming(instants: Iterator[int], count: int) -> Iterator[datetime]:
    for ms, _ in zip(instants, range(count), strict=False):
        at = instant(ms)
        assert at is not None
        yield at
