"""Whom the demo bills, and how much: the customers of `customers.csv`, and the rules of an invoice. Pure."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from importlib.resources import files

TASK = "billing.invoice"
QUEUE = "default"
LARGE_PLAN = "enterprise"
"""The plan whose invoices have so many pages that it takes a while to render one."""
CURRENCIES: dict[str, tuple[Decimal, Decimal]] = {
    "BDT": (Decimal("0.15"), Decimal("0.01")),
    "CHF": (Decimal("0.081"), Decimal("0.01")),
    "EUR": (Decimal("0.21"), Decimal("0.01")),
    "GBP": (Decimal("0.20"), Decimal("0.01")),
    "JPY": (Decimal("0.10"), Decimal("1")),
    "SEK": (Decimal("0.25"), Decimal("0.01")),
    "USD": (Decimal("0"), Decimal("0.01")),
}
"""Tax rate and smallest unit of each currency there is."""
Totals = dict[str, Decimal]


class UnknownCurrency(ValueError):
    """No such currency: no retry will help."""


@dataclass(frozen=True, slots=True)
class Customer:
    id: str
    name: str
    plan: str
    monthly_amount: Decimal
    currency: str

    @property
    def is_large(self) -> bool:
        return self.plan == LARGE_PLAN

    @property
    def mail_fails_first(self) -> bool:
        """Say whether the mail gateway turns this customer's invoice down once: one customer in twenty."""
        return int(self.id[1:]) % 20 == 13 and not self.is_large

    @property
    def can_be_billed(self) -> bool:
        return self.currency in CURRENCIES


@cache
def load() -> dict[str, Customer]:
    """Read the customers that ship with the package, by id."""
    text = (files("rzsched.demo") / "customers.csv").read_text("utf-8")
    customers = [
        Customer(row["id"], row["name"], row["plan"], Decimal(row["monthly_amount"]), row["currency"])
        for row in csv.DictReader(text.splitlines())
    ]
    return {customer.id: customer for customer in customers}


def amount_due(customer: Customer) -> Decimal:
    """Compute a month's invoice: the plan's price with tax, rounded half up. Raises UnknownCurrency."""
    try:
        tax, unit = CURRENCIES[customer.currency]
    except KeyError:
        raise UnknownCurrency(f"there is no currency {customer.currency!r}") from None
    return (customer.monthly_amount * (1 + tax)).quantize(unit, ROUND_HALF_UP)


def expected_totals(customers: Iterable[Customer]) -> Totals:
    """Add up what the books must hold in the end, by currency."""
    totals: Totals = {}
    for customer in customers:
        if customer.can_be_billed:
            totals[customer.currency] = totals.get(customer.currency, Decimal(0)) + amount_due(customer)
    return dict(sorted(totals.items()))


def due_order(customers: Iterable[Customer]) -> tuple[list[Customer], tuple[set[str], set[str]]]:
    """Give the order in which invoices are due, and the ids of two groups of large ones in it.

    Each group is due within a moment, so that there is an instant at which workers are busy with several.
    """
    large = [customer for customer in customers if customer.is_large]
    small = [customer for customer in customers if not customer.is_large]
    half, third = len(large) // 2, len(small) // 3
    first, second = large[:half], large[half:]
    order = small[:third] + first + small[third:] + second
    return order, ({customer.id for customer in first}, {customer.id for customer in second})
