"""The books: one SQLite file that all workers write, and that no stale worker can spoil.

An invoice is unique by its business key (customer, period), whatever runs twice. It carries the fence of the run that
wrote it. Fences grow with every claim, so a write with a smaller fence comes from a worker that lost its job to another
one: it changes nothing and is noted in `refused`.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

_BUSY_S = 15.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS invoices (
  customer TEXT NOT NULL, period TEXT NOT NULL, amount TEXT NOT NULL, currency TEXT NOT NULL,
  job TEXT NOT NULL, fence INTEGER NOT NULL, pid INTEGER NOT NULL, UNIQUE (customer, period));
CREATE TABLE IF NOT EXISTS attempts (
  job TEXT NOT NULL, attempt INTEGER NOT NULL, fence INTEGER NOT NULL, customer TEXT NOT NULL, pid INTEGER NOT NULL,
  due_at REAL, started_at REAL NOT NULL, outcome TEXT, PRIMARY KEY (job, fence));
CREATE TABLE IF NOT EXISTS refused (
  customer TEXT NOT NULL, period TEXT NOT NULL, job TEXT NOT NULL, fence INTEGER NOT NULL,
  stored_fence INTEGER NOT NULL, pid INTEGER NOT NULL);
"""
_UPSERT = """
INSERT INTO invoices (customer, period, amount, currency, job, fence, pid) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (customer, period) DO UPDATE SET
  amount = excluded.amount, currency = excluded.currency, job = excluded.job, fence = excluded.fence, pid = excluded.pid
WHERE excluded.fence > fence
"""
_RETRIED = """
SELECT count(*) FROM attempts AS one WHERE outcome = 'failed'
AND EXISTS (SELECT 1 FROM attempts AS next WHERE next.job = one.job AND next.attempt > one.attempt)
"""
_LATENESS = "SELECT (started_at - due_at) * 1000 FROM attempts WHERE attempt = 1 AND due_at IS NOT NULL ORDER BY 1"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job, as the books know it. `due_at` and `started_at` are epoch seconds."""

    job: str
    attempt: int
    fence: int
    customer: str
    pid: int
    due_at: float | None
    started_at: float


@dataclass(frozen=True, slots=True)
class Invoice:
    customer: str
    period: str
    amount: Decimal
    currency: str


class Books:
    """The books in `path`, made where they are missing. Threads may share them."""

    def __init__(self, path: Path | str) -> None:
        self._guard = threading.Lock()
        self._base = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = NORMAL")
        self._base.executescript(_SCHEMA)

    def close(self) -> None:
        with self._guard:
            self._base.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._guard:
            return self._base.execute(query, values).fetchall()

    # ---- for the handler

    def begin(self, run: Attempt) -> None:
        """Note that a run has begun."""
        with self._writing() as base:
            base.execute(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, NULL)",
                (run.job, run.attempt, run.fence, run.customer, run.pid, run.due_at, run.started_at),
            )

    def fail(self, run: Attempt) -> None:
        with self._writing() as base:
            self._end(base, run, "failed")

    def write(self, run: Attempt, invoice: Invoice) -> bool:
        """Write an invoice under the fence of its run; give False, and note it, where a newer run has written it."""
        key = (invoice.customer, invoice.period)
        with self._writing() as base:
            base.execute(_UPSERT, (*key, str(invoice.amount), invoice.currency, run.job, run.fence, run.pid))
            (stored,) = base.execute("SELECT fence FROM invoices WHERE customer = ? AND period = ?", key).fetchone()
            taken = bool(stored == run.fence)
            if not taken:
                values = (*key, run.job, run.fence, stored, run.pid)
                base.execute("INSERT INTO refused VALUES (?, ?, ?, ?, ?, ?)", values)
            self._end(base, run, "written" if taken else "refused")
        return taken

    @staticmethod
    def _end(base: sqlite3.Connection, run: Attempt, outcome: str) -> None:
        base.execute("UPDATE attempts SET outcome = ? WHERE job = ? AND fence = ?", (outcome, run.job, run.fence))

    # ---- for whoever looks on

    def can_be_written(self, within_s: float) -> bool:
        """Say whether nobody holds the write lock, waiting for it a moment."""
        with self._guard:
            self._base.execute(f"PRAGMA busy_timeout = {int(within_s * 1000)}")
            try:
                self._base.execute("BEGIN IMMEDIATE")
                self._base.execute("ROLLBACK")
                return True
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return False
            finally:
                self._base.execute(f"PRAGMA busy_timeout = {int(_BUSY_S * 1000)}")

    def open_runs(self) -> list[tuple[int, str]]:
        """List runs that have begun and not ended, as (pid, customer)."""
        return self._rows("SELECT pid, customer FROM attempts WHERE outcome IS NULL")

    def started(self) -> set[str]:
        """Name the customers for whom a run has begun."""
        return {customer for (customer,) in self._rows("SELECT DISTINCT customer FROM attempts")}

    def writers(self) -> dict[str, int]:
        """Map each customer billed to the process that wrote the invoice."""
        return dict(self._rows("SELECT customer, pid FROM invoices"))

    def invoices(self) -> list[Invoice]:
        rows = self._rows("SELECT customer, period, amount, currency FROM invoices ORDER BY customer, period")
        return [Invoice(customer, period, Decimal(amount), currency) for customer, period, amount, currency in rows]

    def count(self, what: Literal["invoices", "refused"]) -> int:
        return int(self._rows(f"SELECT count(*) FROM {what}")[0][0])

    def retried(self) -> int:
        """Count failed runs that were followed by another."""
        return int(self._rows(_RETRIED)[0][0])

    def lateness_ms(self) -> list[float]:
        """Give how late each first attempt began, in rising order."""
        return [float(late) for (late,) in self._rows(_LATENESS)]
