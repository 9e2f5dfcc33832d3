"""The end of the demo: what was counted, whether the books balance, and the table that says so."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rzsched.audit import audit
from rzsched.client import Client
from rzsched.demo.customers import QUEUE, Customer, Totals, expected_totals
from rzsched.demo.ledger import Books, Invoice


@dataclass(slots=True, kw_only=True)
class Report:
    """What the books and the queue hold. Times are as their names say; `misplaced` is what the audit found."""

    scheduled: int
    scheduled_again: int
    invoices: int
    duplicates: int
    retried: int
    recovered: int
    stale_writes_refused: int
    stale_finishes_refused: int
    dead: int
    waiting: int
    lateness_p50_ms: float
    lateness_p99_ms: float
    misplaced: list[str]
    missing: list[str]
    unexpected: list[str]
    booked: Totals
    expected: Totals
    seconds: float = 0.0
    events: list[str] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Say in which way the books don't balance; nothing when they do."""
        checks = (
            (self.scheduled == self.invoices + self.dead,
             f"{self.scheduled} scheduled, but {self.invoices} invoices and {self.dead} dead"),
            (self.scheduled_again == 0, f"scheduling all again made {self.scheduled_again} new jobs"),
            (self.duplicates == 0, f"{self.duplicates} duplicate invoices"),
            (not self.missing, f"no invoice for {_few(self.missing)}"),
            (not self.unexpected, f"an invoice that nobody is due: {_few(self.unexpected)}"),
            (self.booked == self.expected, f"booked {_money(self.booked)}, expected {_money(self.expected)}"),
            (self.waiting == 0, f"{self.waiting} jobs still wait or run"),
            (not self.misplaced, f"not in exactly one place: {_few(self.misplaced)}"),
        )  # fmt: skip
        return [fault for holds, fault in checks if not holds]

    def table(self) -> str:
        """Show it to people."""
        rows: list[tuple[str, object]] = [
            ("scheduled", self.scheduled),
            ("scheduled again, new jobs", self.scheduled_again),
            ("invoices", self.invoices),
            ("duplicates", self.duplicates),
            ("retried", self.retried),
            ("recovered", self.recovered),
            ("stale writes refused", self.stale_writes_refused),
            ("stale finishes refused", self.stale_finishes_refused),
            ("dead", self.dead),
            ("lateness p50", f"{self.lateness_p50_ms:.1f} ms"),
            ("lateness p99", f"{self.lateness_p99_ms:.1f} ms"),
            ("every job in exactly one place", "no" if self.misplaced else "yes"),
            ("booked", _money(self.booked)),
            ("the books balance", "no" if self.faults() else "yes"),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def document(self) -> dict[str, Any]:
        """Give it as what JSON has."""
        told: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        told |= {name: {unit: str(sum_) for unit, sum_ in told[name].items()} for name in ("booked", "expected")}
        return told | {"balanced": not self.faults(), "faults": self.faults()}


def close_books(client: Client, books: Books, customers: Iterable[Customer], scheduled: int, again: int) -> Report:
    """Count everything once all is still."""
    customers = list(customers)
    stats = client.queue_stats(QUEUE)
    invoices = books.invoices()
    billed = {invoice.customer for invoice in invoices}
    owed = {customer.id for customer in customers if customer.can_be_billed}
    lateness = books.lateness_ms()
    return Report(
        scheduled=scheduled,
        scheduled_again=again,
        invoices=len(invoices),
        duplicates=len(invoices) - len(billed),
        retried=books.retried(),
        recovered=stats.recovered,
        stale_writes_refused=books.count("refused"),
        stale_finishes_refused=stats.stale,
        dead=stats.dead,
        waiting=stats.scheduled + stats.ready + stats.running,
        lateness_p50_ms=percentile(lateness, 50),
        lateness_p99_ms=percentile(lateness, 99),
        misplaced=misplaced(client),
        missing=sorted(owed - billed),
        unexpected=sorted(billed - owed),
        booked=_totals(invoices),
        expected=expected_totals(customers),
    )


def misplaced(client: Client) -> list[str]:
    """Audit the server: list each job that is not in exactly one place."""
    return [f"{finding.key} {finding.kind}: {finding.detail}" for finding in client.run(audit(client.space)).findings]


def percentile(rising: list[float], percent: float) -> float:
    """Give the nearest-rank percentile of sorted numbers, 0 where there are none."""
    if not rising:
        return 0.0
    return round(rising[max(0, math.ceil(len(rising) * percent / 100) - 1)], 3)


def _totals(invoices: Iterable[Invoice]) -> Totals:
    totals: Totals = {}
    for invoice in invoices:
        totals[invoice.currency] = totals.get(invoice.currency, Decimal(0)) + invoice.amount
    return dict(sorted(totals.items()))


def _money(totals: Totals) -> str:
    return ", ".join(f"{currency} {amount:,}" for currency, amount in totals.items()) or "nothing"


def _few(what: list[str]) -> str:
    return ", ".join(what[:5]) + (f" and {len(what) - 5} more" if len(what) > 5 else "")
