"""What tests of schedules share: processes that declare schedules, and what of them ran."""

from __future__ import annotations

import json
from typing import Any

from tests.fleet import Fleet


def crons(*said: dict[str, Any], app: str = "app", **env: str) -> dict[str, str]:
    """Give the environment that has `tests.crons_app` declare these."""
    return {"RZSCHED_TEST_CRONS": json.dumps(said), "RZSCHED_TEST_APP": app, **env}


def nominal(fleet: Fleet, schedule_id: str | None = None) -> list[float]:
    """Give the nominal seconds of all runs, in the order in which they ran."""
    return [
        run["scheduled_for"] for run in fleet.ledger()
        if schedule_id is None or f".{schedule_id}-" in run["job"]
    ]  # fmt: skip
