"""How late is a job at an idle worker: one that is wanted now, one that is due at a random instant?"""

import random
import time

from bench.common import Figures, answer, parser
from bench.figures import Target, percentile
from bench.fleet import wait_until_joined, workers
from bench.server import Server
from rzsched import Client, JobId, JobSpec

QUESTION = "How long until a handler starts at an idle worker?"
TARGETS = [Target("now_p99_ms", 5), Target("due_p50_ms", 2), Target("due_p99_ms", 8)]
GAP_S = (0.02, 0.1)
"""Between two jobs the worker gets idle again; random, so that no rhythm of the worker's own is met."""
LEAD_S = 2.0
SETTLE_S = 2.0


def immediate(client: Client, samples: int, chance: random.Random) -> list[float]:
    """Give ms from just before the call to the start of the handler."""
    called: list[tuple[JobId, int]] = []
    for _ in range(samples):
        time.sleep(chance.uniform(*GAP_S))
        call_ns = time.time_ns()
        called.append((client.schedule_job("stamp"), call_ns))
    return [(_started_ns(client, job_id) - call_ns) / 1e6 for job_id, call_ns in called]


def due(client: Client, samples: int, chance: random.Random) -> list[float]:
    """Give ms from the due instant, a whole ms of the clock that server and worker share, to the start."""
    instants_ms, at_ms = [], int((time.time() + LEAD_S) * 1000)
    for _ in range(samples):
        at_ms += int(chance.uniform(*GAP_S) * 1000)
        instants_ms.append(at_ms)
    ids = client.schedule_many(JobSpec("stamp", run_at=ms / 1000) for ms in instants_ms)
    time.sleep(at_ms / 1000 - time.time())
    return [_started_ns(client, job_id) / 1e6 - ms for job_id, ms in zip(ids, instants_ms, strict=True)]


def _started_ns(client: Client, job_id: JobId) -> int:
    return int(client.wait(job_id, timeout=10))


def measure(server: Server, samples: int) -> Figures:
    chance = random.Random(20260101)
    with workers(server), Client(server.url) as client:
        wait_until_joined(server)
        client.wait(client.schedule_job("stamp"), timeout=10)
        time.sleep(SETTLE_S)
        figures = _summary("now", immediate(client, samples, chance))
        return figures | _summary("due", due(client, samples, chance))


def _summary(kind: str, late_ms: list[float]) -> Figures:
    figures: Figures = {f"{kind}_p{percent}_ms": percentile(late_ms, percent) for percent in (50, 90, 99)}
    return figures | {f"{kind}_max_ms": max(late_ms), f"{kind}_earliest_ms": min(late_ms)}


def main() -> None:
    options = parser(QUESTION)
    options.add_argument("--samples", type=int, default=600)
    chosen = options.parse_args()
    measured = (f"{chosen.samples} jobs one at a time: before the call to schedule_job, or the due instant, "
                "to the first line of the handler")
    answer(chosen, QUESTION, measured, TARGETS, lambda server: measure(server, chosen.samples))


if __name__ == "__main__":
    main()
