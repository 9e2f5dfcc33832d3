"""What do the append-only file and waiting for it cost?

Throughput is compared between servers that differ in the file alone, each run with both, in turns, so that what else
the machine does meets all alike. Batches are of 100 jobs, written by several threads side by side, as a server with
many producers sees them: one write of the file serves all that arrived while the last one was under way.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable

from bench.common import Figures, answer, parser
from bench.drain import drain
from bench.figures import Target
from bench.server import Server
from rzsched import Client, JobSpec
from rzsched.config import Durability

QUESTION = "What do the append-only file, and waiting until it is on disk, cost?"
TARGETS = [
    Target("enqueue_everysec_to_none", 0.8, at_least=True),
    Target("drain_everysec_to_none", 0.8, at_least=True),
    Target("fsync_to_memory", 0.3, at_least=True),
]
MANY, DRAINED, BATCH, BATCHES, THREADS = 50_000, 20_000, 100, 100, 8


def enqueue_many(server: Server) -> float:
    """Give jobs per second."""
    server.redis.flushall()
    with Client(server.url) as client:
        client.schedule_job("nothing")
        start = time.perf_counter()
        client.schedule_many([JobSpec("nothing")] * MANY)
        return MANY / (time.perf_counter() - start)


def batches(server: Server, durability: Durability) -> float:
    """Write batches from several threads; give jobs per second."""
    server.redis.flushall()
    with Client(server.url, durability=durability) as client:
        client.schedule_job("nothing")
        threads = [threading.Thread(target=_write, args=(client,)) for _ in range(THREADS)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return BATCH * BATCHES * THREADS / (time.perf_counter() - start)


def _write(client: Client) -> None:
    for _ in range(BATCHES):
        client.schedule_many([JobSpec("nothing")] * BATCH)


def measure(none: Server, rounds: int) -> Figures:
    rates: dict[str, list[float]] = {}
    with Server(none.kind, appendonly="yes", appendfsync="everysec") as everysec, Server(
        none.kind, appendonly="yes", appendfsync="always"
    ) as always:
        runs: dict[str, Callable[[], float]] = {
            "enqueue_none": lambda: enqueue_many(none),
            "enqueue_everysec": lambda: enqueue_many(everysec),
            "drain_none": lambda: drain(none, "nothing", DRAINED).rate,
            "drain_everysec": lambda: drain(everysec, "nothing", DRAINED).rate,
            "memory": lambda: batches(always, "memory"),
            "fsync": lambda: batches(always, "fsync"),
            "memory_no_file": lambda: batches(none, "memory"),
        }
        for turn in range(rounds + 1):
            for name, run in runs.items():
                rate = run()
                if turn:  # the first warms up
                    rates.setdefault(name, []).append(rate)
    return compare(rates)


def compare(rates: dict[str, list[float]]) -> Figures:
    figures: Figures = {f"{name}_jobs_per_s": statistics.median(values) for name, values in rates.items()}
    for name, one, other in (
        ("enqueue_everysec_to_none", "enqueue_everysec", "enqueue_none"),
        ("drain_everysec_to_none", "drain_everysec", "drain_none"),
        ("fsync_to_memory", "fsync", "memory_no_file"),
        ("fsync_to_memory_on_the_same_server", "fsync", "memory"),
    ):
        figures[name] = statistics.median(a / b for a, b in zip(rates[one], rates[other], strict=True))
    return figures


def main() -> None:
    options: argparse.Namespace = parser(QUESTION, rounds=9).parse_args()
    measured = (f"schedule_many of {MANY}, a drain of {DRAINED}, and {THREADS} threads that write batches of {BATCH}; "
                f"fsync with appendfsync always; median of {options.rounds} interleaved rounds")
    answer(options, QUESTION, measured, TARGETS, lambda server: measure(server, options.rounds))


if __name__ == "__main__":
    main()
