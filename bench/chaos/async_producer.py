"""A producer of the chaos run on an event loop: many calls at once, some of them cancelled on their way."""

import asyncio
import random
import signal
import time
from typing import Any

from bench.chaos.producer import OTHER_QUEUE, QUEUE, accept, fail, options_of, settings_of
from rzsched import AsyncClient
from rzsched.config import ClientSettings
from rzsched.errors import RzschedError

AT_ONCE = 15
PAUSE_S = (0.1, 0.6)
CANCEL_SHARE = 0.2
KEY_TTL_S = 20
PATIENCE_S = 6.0


class AsyncProducer:
    def __init__(self, client: AsyncClient, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._seed = seed
        self._count = 0
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            calls = [asyncio.create_task(self._one()) for _ in range(AT_ONCE)]
            await asyncio.sleep(self._chance.uniform(0, 0.005))
            for call in calls:
                if self._chance.random() < CANCEL_SHARE:
                    call.cancel()  # whether it was accepted, nobody can say
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, RzschedError):
                    fail("async", outcome)
                elif isinstance(outcome, Exception):
                    raise outcome
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))

    async def _one(self) -> None:
        said: dict[str, Any] = {"queue": self._chance.choice((QUEUE, OTHER_QUEUE))}
        if self._chance.random() < 0.3:
            said["delay"] = self._chance.uniform(0.05, 4.0)
        if self._chance.random() < 0.3:
            await self._keyed(said)
            return
        accept("async", await self._client.schedule_job("work", **said))

    async def _keyed(self, said: dict[str, Any]) -> None:
        """Schedule under a key, and once more: the same job must come back."""
        self._count += 1
        key = f"async-{self._seed}-{self._count}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                first = await self._client.schedule_job("work", idempotency_key=key, idempotency_ttl=KEY_TTL_S, **said)
                break
            except RzschedError as error:
                fail("async", error)
                if time.monotonic() > deadline or self.stopping.is_set():
                    return
                await asyncio.sleep(0.2)
        accept("async", first)
        again = await self._client.schedule_job("work", idempotency_key=key, idempotency_ttl=KEY_TTL_S, **said)
        if again != first or again.created:
            raise AssertionError(f"key {key} has given two jobs: {first} and {again}")


async def produce(url: str, seed: int, settings: ClientSettings) -> None:
    async with AsyncClient(url, settings=settings) as client:
        producer = AsyncProducer(client, seed)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, producer.stopping.set)
        await producer.run()


def main() -> None:
    chosen = options_of("One asyncio producer of the chaos run.")
    asyncio.run(produce(chosen.url, chosen.seed, settings_of(chosen)))


if __name__ == "__main__":
    main()
