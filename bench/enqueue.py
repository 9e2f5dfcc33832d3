"""What do batching and concurrency give a producer, against one call after the other?"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable

from bench.common import Figures, answer, parser
from bench.figures import Target
from bench.server import Server
from rzsched import AsyncClient, Client, JobSpec

QUESTION = "How much faster than one by one are schedule_many and concurrent async calls?"
TARGETS = [Target("many_to_one", 10, at_least=True), Target("concurrent_to_one", 4, at_least=True)]
MANY, ONE_BY_ONE, CONCURRENT, GATHERS = 50_000, 3_000, 1_000, 5


def one_by_one(client: Client) -> float:
    """Give jobs per second."""
    start = time.perf_counter()
    for _ in range(ONE_BY_ONE):
        client.schedule_job("nothing")
    return ONE_BY_ONE / (time.perf_counter() - start)


def many(client: Client) -> float:
    start = time.perf_counter()
    client.schedule_many(JobSpec("nothing") for _ in range(MANY))
    return MANY / (time.perf_counter() - start)


async def concurrent(client: AsyncClient) -> float:
    """Give the median over some crowds of calls."""
    rates = []
    for _ in range(GATHERS):
        start = time.perf_counter()
        await asyncio.gather(*(client.schedule_job("nothing") for _ in range(CONCURRENT)))
        rates.append(CONCURRENT / (time.perf_counter() - start))
    return statistics.median(rates)


def measure(server: Server, rounds: int) -> Figures:
    """Interleave the three, so that what else the machine does meets all alike."""
    rates: dict[str, list[float]] = {"one": [], "many": [], "concurrent": []}
    with Client(server.url) as client, asyncio.Runner() as runner:
        async_client = AsyncClient(server.url)
        kinds: dict[str, Callable[[], float]] = {
            "one": lambda: one_by_one(client),
            "many": lambda: many(client),
            "concurrent": lambda: runner.run(concurrent(async_client)),
        }
        for turn in range(rounds + 1):
            for kind, rate in kinds.items():
                server.redis.flushall()
                if turn == 0:  # warms up: connections, scripts
                    rate()
                else:
                    rates[kind].append(rate())
        runner.run(async_client.aclose())
    return _compare(rates)


def _compare(rates: dict[str, list[float]]) -> Figures:
    figures: Figures = {f"{kind}_jobs_per_s": statistics.median(values) for kind, values in rates.items()}
    for kind in ("many", "concurrent"):
        ratios = ratio_of_rounds(rates[kind], rates["one"])
        figures[f"{kind}_to_one"] = statistics.median(ratios)
        figures[f"{kind}_to_one_of_each_round"] = ratios
    return figures


def ratio_of_rounds(of: Iterable[float], to: Iterable[float]) -> list[float]:
    return [one / other for one, other in zip(of, to, strict=True)]


def main() -> None:
    options = parser(QUESTION, rounds=5).parse_args()
    measured = (f"schedule_many of {MANY}, {ONE_BY_ONE} schedule_job one by one, {CONCURRENT} concurrent schedule_job; "
                f"median of {options.rounds} interleaved rounds")
    answer(options, QUESTION, measured, TARGETS, lambda server: measure(server, options.rounds))


if __name__ == "__main__":
    main()
