"""What the command line makes of words, and what it lets out: durations, JSON, tables, log lines, secrets."""

from __future__ import annotations

import json
import logging
import math
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rzsched.cli import secrets
from rzsched.cli.bulk import read_specs, spec_of
from rzsched.cli.failures import Failure, describe, exit_code
from rzsched.cli.loading import load_app
from rzsched.cli.logs import LineFormatter
from rzsched.cli.output import as_json, cell, dump, print_table
from rzsched.cli.parsing import parse_duration, parse_instant, parse_json, parse_weighted
from rzsched.errors import ConnectionFailed, InvalidName, JobFailed, JobNotFound, PayloadError
from rzsched.retry import Backoff


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1.5", 1.5), ("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("-1", -1), (".5h", 1800),
     ("0", 0), ("1e3", 1000), (" 7 ", 7), ("-1e15", -1e15)],
)  # fmt: skip
def test_a_duration_is_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5x", "m", "5 m", "1h30m", "0x10", "1_000", "٣", "5M", "--5"])
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match="write seconds such as"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1" * 5000, "1" + "0" * 400 + "ms"])
def test_what_is_not_finite_is_left_for_the_library_to_refuse(text: str) -> None:
    assert not math.isfinite(parse_duration(text))


def test_an_instant_needs_its_offset() -> None:
    assert parse_instant("2026-11-29T12:00:00Z") == datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert parse_instant("2026-11-29T12:00+06:00") == datetime(2026, 11, 29, 6, tzinfo=UTC)
    for naive in ("2026-11-29T12:00:00", "2026-11-29"):
        with pytest.raises(ValueError, match=r"no offset from UTC: add Z"):
            parse_instant(naive)
    with pytest.raises(ValueError, match="no ISO 8601 instant"):
        parse_instant("tomorrow")


def test_what_is_wrong_with_json_is_said_without_showing_it() -> None:
    for text, why in [("[1,", "Expecting value"), ("{'password': 1}", "property name"), ("[" * 100_000, "too deep")]:
        with pytest.raises(ValueError, match=why) as caught:
            parse_json(text)
        assert "password" not in str(caught.value)


def test_a_queue_may_have_a_weight() -> None:
    assert parse_weighted("email") == ("email", 1)
    assert parse_weighted("email:7") == ("email", 7)
    assert parse_weighted("--help:2") == ("--help", 2)


@pytest.mark.parametrize("text", ["a:b", "a:b:2", ":3", "", "a:", "a:-1", "a: 2", "a:٣"])
def test_a_bad_queue_is_refused_as_a_name(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_weighted(text)


def test_a_weight_has_bounds() -> None:
    for text in ("a:0", "a:1001", "a:" + "9" * 5000):
        with pytest.raises(ValueError, match="weight"):
            parse_weighted(text)


def test_any_result_is_one_json_document() -> None:
    value = {
        "at": datetime(2026, 11, 29, 12, tzinfo=UTC), "day": date(2026, 11, 29), "for": timedelta(minutes=1),
        "raw": b"\x00\xff", "nan": math.nan, "price": Decimal("1.10"), "id": UUID(int=1), "set": {2, 1},
        "pair": (1, "é"), "map": {1: "a"}, "big": 10**5000,
    }  # fmt: skip
    assert json.loads(dump(value)) == {
        "at": "2026-11-29T12:00:00+00:00", "day": "2026-11-29", "for": 60.0, "raw": {"$bytes": "AP8="},
        "nan": {"$float": "nan"}, "price": "1.10", "id": str(UUID(int=1)), "set": {"$set": [1, 2]}, "pair": [1, "é"],
        "map": {"$map": [[1, "a"]]}, "big": {"$int": hex(10**5000)},
    }  # fmt: skip
    assert dump("é\x1b\u202e").isascii()
    assert as_json([True, None, 1.5]) == [True, None, 1.5]


def test_a_table_is_aligned_and_keeps_to_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["QUEUE", "READY"], [["a", 5], ["long-name", 1234]])
    assert capsys.readouterr().out == "QUEUE      READY\na              5\nlong-name   1234\n"
    assert cell("two\nlines\x1b[31m") == "two lines\\x1b[31m"
    assert cell(datetime(2026, 11, 29, 12, tzinfo=UTC)) == "2026-11-29T12:00:00.000Z"


@pytest.mark.parametrize(
    ("error", "code"),
    [(JobFailed("a.0.b", "x"), 1), (OSError("x"), 1), (ValueError("x"), 2), (TypeError("x"), 2),
     (InvalidName("queue", "x", "y"), 2), (PayloadError("args[0]", "x"), 2), (JobNotFound("a.0.b"), 3),
     (ConnectionFailed("x"), 4), (TimeoutError("x"), 1), (Failure("x", 3), 3)],
)  # fmt: skip
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_is_one_line_whatever_it_says() -> None:
    assert describe(ValueError("a\nb\x1b[0m")) == "a b\\x1b[0m"
    assert describe(Failure("x\n" * 5000)).isprintable()
    assert describe(KeyError()) == "KeyError"


@pytest.fixture
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


@pytest.mark.parametrize(
    "url",
    ["redis://user:p%40ss%2F%23w0rd@127.0.0.1:6379/0", "redis://user:p@ss/#w0rd@127.0.0.1", "unix://:p@ss/#w0rd@/x.sock",
     "redis://h/0?password=p%40ss%2F%23w0rd&db=1"],
)  # fmt: skip
@pytest.mark.usefixtures("no_secrets")
def test_no_password_is_shown_with_its_url(url: str) -> None:
    for text in (f"bad url {url}", f"{{'url': '{url}'}}", f"url={url} and more"):
        assert "w0rd" not in secrets.hide(text)
    assert "ss/" not in secrets.hide(url)


@pytest.mark.usefixtures("no_secrets")
def test_a_password_is_hidden_where_it_stands_alone_decoded_or_not() -> None:
    secrets.remember_url("redis://user:p%40ss%2F%23w0rd@127.0.0.1")
    assert secrets.hide("p@ss/#w0rd or p%40ss%2F%23w0rd") == "*** or ***"
    secrets.remember_url(None)
    secrets.remember_url("redis://127.0.0.1")
    assert secrets.hide("user@example.org at 127.0.0.1") == "user@example.org at 127.0.0.1"


def _line(message: str, *args: Any, traces: bool = False, **more: Any) -> str:
    told = {"name": "rzsched.worker", "levelname": "INFO", "msg": message, "args": args, **more}
    record = logging.makeLogRecord(told)
    record.created = 1_796_000_000.123
    return LineFormatter(traces=traces).format(record)


def test_a_log_record_is_one_line_with_its_facts() -> None:
    line = _line("claimed %d\njobs\x1b[31m", 3, job_id="a.0.b", why='two "words"', none="")
    assert line == ('2026-11-30T00:53:20.123Z INFO rzsched.worker claimed 3\\njobs\\x1b[31m '
                    'job_id=a.0.b why="two \\"words\\"" none=""')  # fmt: skip


def test_an_error_in_a_log_is_named_and_traced_only_when_asked() -> None:
    try:
        raise ValueError("first\nsecond redis://u:hunter2@h/0")
    except ValueError:
        told = sys.exc_info()
    short, full = _line("broke", exc_info=told), _line("broke", traces=True, exc_info=told)
    assert 'error="ValueError: first' in short and "Traceback" not in short
    assert "Traceback" in full
    for line in (short, full):
        assert line.isprintable() and "hunter2" not in line


def test_a_line_of_a_file_takes_the_options_it_does_not_name() -> None:
    spec = spec_of('{"task": "t", "at": 5, "backoff": {"base": 1}}', {"delay": 9, "queue": "q"})
    assert (spec.run_at, spec.delay, spec.queue, spec.backoff) == (5, None, "q", Backoff(base=1))
    assert spec_of('{"task": "t", "queue": null}', {"delay": 9}).delay == 9


@pytest.mark.parametrize(
    ("line", "why"),
    [("[]", "not a JSON object"), ("{", "not JSON"), ('{"args": []}', "task is missing"), ('{"task": 5}', "pass a str"),
     ('{"task": "t", "prio": 1}', "unknown key 'prio': use args, at,"),
     ('{"task": "t", "at": "2026-01-01"}', "no offset"),
     ('{"task": "t", "at": 1, "run_at": 1}', "not both"), ('{"task": "t", "delay": 1, "at": 1}', "not both"),
     ('{"task": "a b"}', "invalid task"), ('{"task": "t", "delay": "5"}', "delay must be seconds"),
     ('{"task": "t", "delay": true}', "not bool"), ('{"task": "t", "args": {}}', "pass a list"),
     ('{"task": "t", "args": ["\\ud800"]}', r"args\[0\]: holds a lone surrogate"), ("\xff", "not UTF-8")],
)  # fmt: skip
def test_a_bad_line_is_named_by_its_number(line: str, why: str) -> None:
    lines = [b'{"task": "t"}\n', b" \n", line.encode("latin-1")]
    specs = read_specs(lines, "jobs.jsonl", {}, 1000)
    assert next(specs).task == "t"
    with pytest.raises(Failure, match=rf"^jobs.jsonl line 3: .*{why}") as caught:
        next(specs)
    assert exit_code(caught.value) == 2


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh module `shop_tasks` in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    path = tmp_path / "shop_tasks.py"
    path.write_text(textwrap.dedent("""
        from rzsched.app import App
        app = App("redis://127.0.0.1:1/0", namespace="own")
        other = 5
    """))
    yield path
    sys.modules.pop("shop_tasks", None)


@pytest.mark.usefixtures("module")
def test_the_app_of_a_module_in_the_current_folder_is_found() -> None:
    app = load_app("shop_tasks:app")
    assert (app.url, app.namespace) == ("redis://127.0.0.1:1/0", "own")
    app = load_app("shop_tasks:app", "redis://127.0.0.1:2/0", "given")
    assert (app.url, app.namespace) == ("redis://127.0.0.1:2/0", "given")


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("target", "why"),
    [("shop_tasks", "write module:app"), ("./shop_tasks.py:app", "write module:app"),
     ("shop_tasks:", "write module:app"), ("no_such_module:app", "no module 'no_such_module' in /"),
     ("shop_tasks.deeper:app", "no module 'shop_tasks.deeper'"),
     ("shop_tasks:nothing", "no 'nothing'; it has the App app"), ("shop_tasks:other", "is a int, not an App")],
)  # fmt: skip
def test_a_target_that_names_no_app_is_refused_with_a_hint(target: str, why: str) -> None:
    with pytest.raises(Failure, match=why):
        load_app(target)


@pytest.mark.parametrize("code", ["import no_such_dependency", "1/0", "raise SystemExit(3)", "def"])
def test_a_module_that_fails_is_told_from_one_that_is_missing(module: Path, code: str) -> None:
    module.write_text(code)
    with pytest.raises(Failure, match=r"^importing shop_tasks failed: \w+.*\(-v shows where\)$") as caught:
        load_app("shop_tasks:app")
    assert exit_code(caught.value) == 1 and caught.value.__cause__ is not None
