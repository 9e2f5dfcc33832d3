"""`rzsched demo`, played once as users see it; its books, and what happens when they are off."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rzsched.cli import cli
from rzsched.demo import customers, report
from rzsched.demo.ledger import Attempt, Books, Invoice
from rzsched.demo.report import Report
from tests.conftest import StartProcess

TAMPER = """
import sqlite3, sys
from rzsched.demo import run

def tamper(path):
    with sqlite3.connect(path) as base:
        base.execute("DELETE FROM invoices WHERE customer = 'C0001'")
        base.execute("UPDATE invoices SET amount = '1.00' WHERE customer = 'C0002'")

sys.exit(run(before_closing=tamper))
"""


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with closing(Books(tmp_path / "books.sqlite3")) as made:
        yield made


def attempt(fence: int, customer: str = "C0001", number: int = 1) -> Attempt:
    return Attempt("default.0.x", number, fence, customer, os.getpid(), 99.5, 100.0)


def written(books: Books, fence: int, amount: str = "10.00") -> bool:
    run = attempt(fence)
    books.begin(run)
    return books.write(run, Invoice("C0001", "2026-11", Decimal(amount), "EUR"))


# ---- the whole demo


def test_the_demo_balances_its_books_while_workers_die(processes: StartProcess, tmp_path: Path) -> None:
    started = time.monotonic()
    process = processes(sys.executable, "-m", "rzsched", "demo", "--json", env={"TMPDIR": str(tmp_path)})
    assert process.wait(timeout=60) == 0, process.output()
    assert time.monotonic() - started < 40
    told: dict[str, Any] = json.loads(process.output())
    assert (told["scheduled"], told["invoices"], told["dead"], told["duplicates"]) == (200, 199, 1, 0)
    assert told["scheduled_again"] == told["waiting"] == 0
    assert told["retried"] >= 1
    assert told["recovered"] >= 2, "one of the killed worker's, one of the paused one's"
    assert told["stale_writes_refused"] >= 1
    assert told["stale_finishes_refused"] >= 1
    assert told["misplaced"] == told["faults"] == []
    assert told["booked"] == told["expected"] != {}
    assert 0 <= told["lateness_p50_ms"] <= told["lateness_p99_ms"]
    assert any("SIGKILL" in line for line in told["events"])
    assert told["events"][-1].endswith("the workers have ended")
    assert not list(tmp_path.glob("rzsched-demo-*")), "the folder is removed"


def test_the_demo_exits_with_1_when_the_books_are_off(processes: StartProcess, tmp_path: Path) -> None:
    process = processes(sys.executable, "-c", TAMPER, env={"TMPDIR": str(tmp_path)})
    assert process.wait(timeout=60) == 1, process.output()
    printed = process.output()
    assert "the books don't balance: 200 scheduled, but 198 invoices and 1 dead" in printed
    assert "the books don't balance: no invoice for C0001\n" in printed
    assert "the books don't balance: booked BDT" in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_and_no_folder(processes: StartProcess, tmp_path: Path,
                                                            number: signal.Signals) -> None:
    process = processes(sys.executable, "-m", "rzsched", "demo", env={"TMPDIR": str(tmp_path)})
    deadline = time.monotonic() + 30
    while "invoices scheduled" not in process.output():
        assert time.monotonic() < deadline and process.poll() is None, process.output()
        time.sleep(0.02)
    children = children_of(process.pid)
    assert len(children) == 2
    process.send_signal(number)
    assert process.wait(timeout=20) == 128 + number, process.output()
    assert "Traceback" not in process.output()
    assert not any(is_alive(pid) for pid in children)
    assert not list(tmp_path.glob("rzsched-demo-*"))


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    result = CliRunner().invoke(cli, ["demo", "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert "not an empty folder" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# ---- the books


def test_a_greater_fence_replaces_an_invoice_and_a_smaller_one_is_refused(books: Books) -> None:
    assert written(books, fence=5, amount="10.00")
    assert written(books, fence=7, amount="11.00")
    assert not written(books, fence=6, amount="99.00")
    assert books.invoices() == [Invoice("C0001", "2026-11", Decimal("11.00"), "EUR")]
    assert books.count("refused") == 1


def test_a_refused_write_says_which_fence_stood_in_its_way(books: Books, tmp_path: Path) -> None:
    written(books, fence=7)
    written(books, fence=3)
    with closing(sqlite3.connect(tmp_path / "books.sqlite3")) as base:
        assert base.execute("SELECT customer, fence, stored_fence FROM refused").fetchall() == [("C0001", 3, 7)]
        outcomes = base.execute("SELECT fence, outcome FROM attempts ORDER BY fence").fetchall()
    assert outcomes == [(3, "refused"), (7, "written")]


def test_the_same_run_may_write_twice(books: Books) -> None:
    run, invoice = attempt(4), Invoice("C0001", "2026-11", Decimal("1.50"), "EUR")
    books.begin(run)
    assert books.write(run, invoice)
    assert books.write(run, invoice)
    assert (books.count("invoices"), books.count("refused")) == (1, 0)


def test_failed_runs_that_were_followed_by_another_count_as_retried(books: Books) -> None:
    for number in (1, 2, 3):
        run = attempt(number, number=number)
        books.begin(run)
        books.fail(run)
    assert books.retried() == 2
    assert books.open_runs() == []


def test_only_first_attempts_are_timed(books: Books) -> None:
    books.begin(attempt(1))
    books.begin(attempt(2, number=2))
    assert books.lateness_ms() == [500.0]


def test_the_books_tell_whether_somebody_holds_the_write_lock(books: Books, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "books.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not books.can_be_written(0.02)
        other.execute("ROLLBACK")
    assert books.can_be_written(0.02)


# ---- the customers and the report


def test_there_are_200_customers_and_one_that_cannot_be_billed() -> None:
    everybody = customers.load().values()
    assert len(everybody) == 200
    assert len({customer.name for customer in everybody}) == 200
    (hopeless,) = [customer for customer in everybody if not customer.can_be_billed]
    with pytest.raises(customers.UnknownCurrency, match="ZZL"):
        customers.amount_due(hopeless)
    assert sum(customer.mail_fails_first for customer in everybody) >= 5


def test_amounts_are_rounded_half_up_to_the_currency() -> None:
    customer = customers.Customer("C0001", "x", "team", Decimal("10.50"), "JPY")
    assert customers.amount_due(customer) == Decimal("12")
    assert str(customers.amount_due(replace(customer, currency="CHF"))) == "11.35"


def test_the_due_order_has_everybody_once_and_two_groups_of_large_invoices() -> None:
    everybody = customers.load().values()
    order, (first, second) = customers.due_order(everybody)
    assert sorted(customer.id for customer in order) == sorted(customers.load())
    assert {customer.id for customer in order[-len(second):]} == second
    assert len(first) == len(second) == 8


BALANCED = Report(
    scheduled=2, scheduled_again=0, invoices=1, duplicates=0, retried=3, recovered=1, stale_writes_refused=1,
    stale_finishes_refused=1, dead=1, waiting=0, lateness_p50_ms=1.0, lateness_p99_ms=2.0, misplaced=[], missing=[],
    unexpected=[], booked={"EUR": Decimal("1.21")}, expected={"EUR": Decimal("1.21")},
)  # fmt: skip


def test_balanced_books_have_no_faults() -> None:
    assert BALANCED.faults() == []
    assert BALANCED.document()["booked"] == {"EUR": "1.21"}
    assert BALANCED.table().endswith("the books balance               yes")


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ({"scheduled": 3}, "3 scheduled, but 1 invoices and 1 dead"),
        ({"scheduled_again": 1}, "1 new jobs"),
        ({"duplicates": 1}, "1 duplicate"),
        ({"missing": ["C0007"]}, "no invoice for C0007"),
        ({"unexpected": ["C0010"]}, "nobody is due: C0010"),
        ({"booked": {"EUR": Decimal("1.20")}}, "booked EUR 1.20, expected EUR 1.21"),
        ({"waiting": 4}, "4 jobs still wait or run"),
        ({"misplaced": ["default.0.x nowhere: PENDING"]}, "default.0.x nowhere"),
    ],
)
def test_every_way_to_be_off_is_named(off: dict[str, Any], said: str) -> None:
    (fault,) = replace(BALANCED, **off).faults()
    assert said in fault


def test_percentiles_are_of_the_nearest_rank() -> None:
    rising = [float(number) for number in range(1, 201)]
    assert (report.percentile(rising, 50), report.percentile(rising, 99)) == (100.0, 198.0)
    assert report.percentile([], 99) == 0.0
