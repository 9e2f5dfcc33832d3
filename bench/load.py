"""Locust users against a live fleet; at the end the books must balance: all that was accepted ran or was cancelled."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import ledger
from bench.books import Books
from bench.common import Figures, answer, parser
from bench.figures import Target, percentile_of_counts
from bench.fleet import ROOT, wait_until_joined, workers
from bench.server import Server
from rzsched import Client, JobNotFound, State

QUESTION = "Under many producers at once, did everything that was accepted run?"
TARGETS = [Target("lost", 0), Target("ran_twice", 0), Target("failures", 0), Target("accepted", 1, at_least=True)]
FLEET = 2
CALM_TIMEOUT_S = 90.0
LOCUST_GRACE_S = 60.0


def run_locust(environment: dict[str, str], users: int, seconds: int) -> list[dict[str, Any]]:
    """Run Locust headless; give its statistics, one entry an operation."""
    command = [
        sys.executable, "-m", "locust", "-f", str(ROOT / "bench" / "locustfile.py"), "--headless", "--only-summary",
        "--json", "--users", str(users), "--spawn-rate", str(users), "--run-time", f"{seconds}s",
        "--stop-timeout", "10",
    ]  # fmt: skip
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}, text=True,
        capture_output=True, timeout=seconds + LOCUST_GRACE_S, check=False,
    )  # fmt: skip
    try:
        entries: list[dict[str, Any]] = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"Locust gave no statistics (exit code {done.returncode}):\n{done.stderr[-3000:]}") from None
    return entries


def operation_figures(entries: Iterable[dict[str, Any]], seconds: float) -> Figures:
    """Sum up Locust's statistics: requests, failures, and ms per operation."""
    entries = list(entries)
    requests = sum(entry["num_requests"] for entry in entries)
    return {
        "requests_per_s": requests / seconds,
        "failures": sum(entry["num_failures"] for entry in entries),
        "operations": {entry["name"]: _one_operation(entry) for entry in entries},
    }


def _one_operation(entry: dict[str, Any]) -> Figures:
    counts = {float(ms): int(count) for ms, count in entry["response_times"].items()}
    return {
        "requests": entry["num_requests"],
        "failures": entry["num_failures"],
        "p50_ms": percentile_of_counts(counts, 50),
        "p99_ms": percentile_of_counts(counts, 99),
    }


def settle(client: Client) -> float:
    """Wait until nothing is scheduled, ready or running; give the seconds that took."""
    start = time.monotonic()
    while time.monotonic() - start < CALM_TIMEOUT_S:
        stats = client.queue_stats("default")
        if stats.scheduled + stats.ready + stats.running == 0:
            break
        time.sleep(0.1)
    return time.monotonic() - start


def states(client: Client, job_ids: Iterable[str]) -> dict[str, State | None]:
    """Ask how each job ended; None where the server knows nothing of it."""
    found: dict[str, State | None] = {}
    for job_id in job_ids:
        try:
            found[job_id] = client.get_job_status(job_id).state
        except JobNotFound:
            found[job_id] = None
    return found


def read_books(client: Client, folder: Path) -> Books:
    accepted = list(ledger.read(folder, ledger.ACCEPTED))
    cancelled = ledger.read(folder, ledger.CANCELLED)
    return Books.of(accepted, cancelled, ledger.read(folder, ledger.RUNS), states(client, accepted))


def measure(server: Server, users: int, seconds: int) -> Figures:
    folder = server.folder / "ledgers"
    folder.mkdir()
    environment = {ledger.FOLDER_VARIABLE: str(folder), "RZSCHED_URL": server.url, "RZSCHED_NAMESPACE": "rz"}
    with workers(server, FLEET, environment), Client(server.url) as client:
        wait_until_joined(server, FLEET)
        figures = operation_figures(run_locust(environment, users, seconds), seconds)
        figures["first_failures"] = list(ledger.read(folder, ledger.FAILURES))[:5]
        figures["settled_s"] = settle(client)
        return figures | read_books(client, folder).figures()


def main() -> None:
    options = parser(QUESTION)
    options.add_argument("--users", type=int, default=50)
    options.add_argument("--seconds", type=int, default=20)
    chosen: argparse.Namespace = options.parse_args()
    measured = f"{chosen.users} Locust users for {chosen.seconds} s, {FLEET} worker processes"
    balanced = answer(chosen, QUESTION, measured, TARGETS, lambda server: measure(server, chosen.users, chosen.seconds))
    sys.exit(0 if balanced else 1)


if __name__ == "__main__":
    main()
