"""Enqueue jobs from a file of JSON lines: read lazily, written in chunks."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import IO, Any

import click

from rzsched.cli.context import Session
from rzsched.cli.failures import WRONG_USAGE, Failure, describe, exit_code, warn
from rzsched.cli.output import print_json
from rzsched.cli.parsing import parse_instant, parse_json
from rzsched.client import Client
from rzsched.config import Durability
from rzsched.errors import RzschedError
from rzsched.job import JobId, JobSpec, prepare
from rzsched.names import check_task
from rzsched.retry import Backoff

_KEYS = frozenset(option.name for option in fields(JobSpec)) | {"at"}
_TIMES = frozenset({"run_at", "delay"})


@dataclass(slots=True)
class _Tally:
    """What was written so far."""

    count: int = 0
    created: int = 0
    ids: list[JobId] = field(default_factory=list)


def enqueue_file(session: Session, path: str, defaults: Mapping[str, Any], durability: Durability | None, *,
                 show_ids: bool, json: bool) -> None:
    """Enqueue each line; a regular file is checked whole before anything is written."""
    client = session.client()
    tally = _Tally()
    limit = client.space.settings.payload_limit
    with client, click.open_file(path, "rb") as lines:
        total = _check_file(lines, path, defaults, limit) if _is_regular(path) else None
        try:
            with _progress(total, "enqueueing") as bar:
                specs = read_specs(lines, path, defaults, limit)
                for ids in _write(client, specs, client.space.settings.chunk * 4, durability):
                    _count(tally, ids, keep=json)
                    if show_ids and not json:
                        click.echo("\n".join(ids))
                    if bar is not None:
                        bar.update(len(ids))
        except (RzschedError, click.ClickException, ValueError, TypeError) as error:
            raise Failure(f"{describe(error)}; {tally.count} jobs were written before", exit_code(error)) from error
    _report(tally, show_ids, json)


def _report(tally: _Tally, show_ids: bool, json: bool) -> None:
    if json:
        return print_json({"count": tally.count, "created": tally.created, "ids": tally.ids})
    if not show_ids:
        click.echo(tally.created)
    if tally.created < tally.count:
        warn(f"{tally.count - tally.created} lines made no new job: their idempotency keys were in use")


def _count(tally: _Tally, ids: list[JobId], keep: bool) -> None:
    tally.count += len(ids)
    tally.created += sum(job_id.created for job_id in ids)
    if keep:
        tally.ids += ids


def _is_regular(path: str) -> bool:
    return path != "-" and stat.S_ISREG(os.stat(path).st_mode)


def _check_file(lines: IO[bytes], path: str, defaults: Mapping[str, Any], limit: int) -> int:
    """Check every line, count the jobs, and go back to the start."""
    count = 0
    with _progress(os.fstat(lines.fileno()).st_size, "checking") as bar:
        for _ in read_specs(_watched(lines, bar), path, defaults, limit):
            count += 1
    lines.seek(0)
    return count


def _watched(lines: IO[bytes], bar: Any) -> Iterator[bytes]:
    for line in lines:
        yield line
        if bar is not None:
            bar.update(len(line))


def _progress(total: int | None, label: str) -> AbstractContextManager[Any]:
    if not total or not sys.stderr.isatty():
        return nullcontext()
    return click.progressbar(length=total, label=label, file=sys.stderr, update_min_steps=max(total // 200, 1))


def _write(client: Client, specs: Iterable[JobSpec], size: int,
           durability: Durability | None) -> Iterator[list[JobId]]:
    specs = iter(specs)
    while chunk := list(islice(specs, size)):
        yield client.schedule_many(chunk, durability=durability)


def read_specs(lines: Iterable[bytes], path: str, defaults: Mapping[str, Any], limit: int) -> Iterator[JobSpec]:
    """Read and check one job a line, blank lines left out; a bad one raises a Failure that names its line."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            if not text:
                continue
            spec = spec_of(text, defaults)
            prepare(spec, spec.task, spec.args, spec.kwargs, limit)
        except UnicodeDecodeError:
            raise Failure(f"{_named(path)} line {number}: not UTF-8", WRONG_USAGE) from None
        except (ValueError, TypeError) as error:
            raise Failure(f"{_named(path)} line {number}: {error}", WRONG_USAGE) from error
        yield spec


def _named(path: str) -> str:
    return "stdin" if path == "-" else path


def spec_of(text: str, defaults: Mapping[str, Any]) -> JobSpec:
    """Make a job of one line; the rest of its checking is the library's."""
    told = parse_json(text)
    if not isinstance(told, dict):
        raise ValueError("not a JSON object")
    if unknown := sorted(told.keys() - _KEYS):
        raise ValueError(f"unknown key {unknown[0]!r}: use {', '.join(sorted(_KEYS - {'run_at'}))}")
    told = {name: value for name, value in told.items() if value is not None}
    if "at" in told:
        if "run_at" in told:
            raise ValueError("give at or run_at, not both")
        told["run_at"] = told.pop("at")
    if "task" not in told:
        raise ValueError("task is missing")
    check_task(told["task"])
    if isinstance(told.get("run_at"), str):
        told["run_at"] = parse_instant(told["run_at"])
    if isinstance(told.get("backoff"), dict):
        told["backoff"] = Backoff(**told["backoff"])
    if told.keys() & _TIMES:
        defaults = {name: value for name, value in defaults.items() if name not in _TIMES}
    return JobSpec(**{**defaults, **told})
