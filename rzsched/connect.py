"""Run calls over redis-py, sync or async; redis-py's own exceptions do not leave this module.

A link tries again, with backoff and jitter, what `exchange` says may be sent again. It never leaves a half-read
connection in its pool, so no answer can reach another caller.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from rzsched import embedded
from rzsched.errors import ServerUnsuitable
from rzsched.exchange import (
    FITNESS_QUESTIONS,
    FOREIGN,
    IN_BAND,
    CredentialsRefused,
    Exchange,
    Step,
    check_fitness,
    translate,
)
from rzsched.urls import check_url, describe_url


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How patient a link is. `retry_s` bounds how long it goes on trying; 0 leaves retrying to its owner.

    Without `check_fitness` it talks to any server, to find out what is wrong with it.
    """

    connect_timeout_s: float = 3.0
    command_timeout_s: float | None = 15.0
    retry_s: float = 1.0
    max_connections: int = 1000
    check_fitness: bool = True


def backoff_delays(total_s: float, first_s: float = 0.02, most_s: float = 1.0) -> Iterator[float]:
    """Yield jittered waits that grow from `first_s` to `most_s`, until they add up to `total_s`."""
    spent, step = 0.0, first_s
    while spent < total_s:
        delay = step * random.uniform(0.5, 1.5)
        spent += delay
        step = min(step * 2, most_s)
        yield delay


def _pool_arguments(settings: LinkSettings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.command_timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": settings.max_connections,
    }


_ANSWER_FORM = {"protocol": 2, "decode_responses": False}
"""What the readers of answers rely on: no option in a URL may change it."""


class _Persistence:
    """Whether and when to try again, for one exchange."""

    def __init__(self, retry_s: float, where: str) -> None:
        self._delays = backoff_delays(retry_s)
        self._where = where

    def delay_after(self, exchange: Exchange, error: Exception | None) -> float | None:
        """Say how long to wait before the next try; None: it is over, and every call has its outcome."""
        if error is not None:
            exchange.lost(error)
        failure = error or exchange.refusal
        if exchange.done or failure is None:
            return None
        hopeless = isinstance(translate(failure, self._where), CredentialsRefused | ServerUnsuitable)
        delay = None if hopeless else next(self._delays, None)
        if delay is None:
            exchange.give_up(failure)
        return delay


def _raise_first(outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


class SyncLink:
    """Calls over a pool of blocking connections. Threads may share it; after a fork the child gets its own pool."""

    def __init__(self, url: str, settings: LinkSettings) -> None:
        self._url = check_url(url)
        self.where = describe_url(url)
        self._settings = settings
        self._pool: Any = None
        self._fit = not settings.check_fitness

    @property
    def pool(self) -> Any:
        if self._pool is None:
            pool = redis.ConnectionPool.from_url(embedded.resolve(self._url), **_pool_arguments(self._settings))
            pool.connection_kwargs.update(_ANSWER_FORM)
            self._pool = pool
        return self._pool

    def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return _raise_first(self.outcomes(steps))

    def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip; give each one's answer, or the exception it ends with."""
        exchange = Exchange(steps, self.where)
        persistence = _Persistence(self._settings.retry_s, self.where)
        while not exchange.done:
            failure = self._try(exchange)
            delay = persistence.delay_after(exchange, failure)
            if delay is not None:
                self.pool.disconnect(inuse_connections=False)  # the others are likely dead too, or a demoted server's
                time.sleep(delay)
        return exchange.outcomes

    def _try(self, exchange: Exchange) -> Exception | None:
        exchange.begin()
        try:
            self._attempt(exchange)
        except FOREIGN as error:
            return error
        return None

    def _attempt(self, exchange: Exchange) -> None:
        connection = self.pool.get_connection()
        try:
            if not self._fit:
                self._check_fitness(connection)
            self._talk(connection, exchange)
            if exchange.wants_scripts:
                self._talk(connection, exchange)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self.pool.release(connection)

    def _talk(self, connection: Any, exchange: Exchange) -> None:
        asked = []
        for indexes, parcel in exchange.parcels():
            asked += indexes
            exchange.sent = True
            connection.send_packed_command([parcel], check_health=False)
        for index in asked:
            exchange.take(index, self._read(connection))

    def _read(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except IN_BAND as error:
            return error

    def _check_fitness(self, connection: Any) -> None:
        connection.send_packed_command(FITNESS_QUESTIONS, check_health=False)
        for _ in FITNESS_QUESTIONS:
            check_fitness(self._read(connection), self.where)
        self._fit = True

    def close(self) -> None:
        if self._pool is not None:
            self._pool.disconnect()


class AsyncLink:
    """Calls over a pool of asyncio connections, for one event loop."""

    def __init__(self, url: str, settings: LinkSettings) -> None:
        self._url = check_url(url)
        self.where = describe_url(url)
        self._settings = settings
        self._pool: Any = None
        self._listener_pool: Any = None
        self._fit = not settings.check_fitness

    async def pool(self) -> Any:
        if self._pool is None:
            pool = await self._make_pool({})
            self._pool = self._pool or pool
        return self._pool

    async def listener_pool(self) -> Any:
        """Give the pool for subscriptions, whose connections block. It is the caller who bounds what it waits for.

        With a timeout of the socket's redis-py sends under `asyncio.wait_for`, which in Python 3.11 may swallow a
        cancellation: a cancelled waiter would wait on.
        """
        if self._listener_pool is None:
            pool = await self._make_pool({"socket_timeout": None})
            self._listener_pool = self._listener_pool or pool
        return self._listener_pool

    async def _make_pool(self, said: dict[str, Any]) -> Any:
        url = self._url
        if url.startswith("embedded:"):
            # Starting an embedded server takes a moment, which the loop should not stand still for.
            url = await asyncio.to_thread(embedded.resolve, url)
        pool = redis.asyncio.ConnectionPool.from_url(url, **_pool_arguments(self._settings))
        pool.connection_kwargs.update(_ANSWER_FORM, **said)
        return pool

    async def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return _raise_first(await self.outcomes(steps))

    async def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip; give each one's answer, or the exception it ends with."""
        exchange = Exchange(steps, self.where)
        persistence = _Persistence(self._settings.retry_s, self.where)
        while not exchange.done:
            failure = await self._try(exchange)
            delay = persistence.delay_after(exchange, failure)
            if delay is not None:
                pool = await self.pool()
                await pool.disconnect(inuse_connections=False)
                await asyncio.sleep(delay)
        return exchange.outcomes

    async def _try(self, exchange: Exchange) -> Exception | None:
        exchange.begin()
        try:
            await self._attempt(exchange)
        except FOREIGN as error:
            return error
        return None

    async def _attempt(self, exchange: Exchange) -> None:
        pool = await self.pool()
        connection = await pool.get_connection()
        try:
            if not self._fit:
                await self._check_fitness(connection)
            await self._talk(connection, exchange)
            if exchange.wants_scripts:
                await self._talk(connection, exchange)
        except BaseException:
            # Not awaited: a cancelled task may not await, and the answers still to come must find nobody.
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)

    async def _talk(self, connection: Any, exchange: Exchange) -> None:
        asked = []
        for indexes, parcel in exchange.parcels():
            asked += indexes
            exchange.sent = True
            await connection.send_packed_command([parcel], check_health=False)
        for index in asked:
            exchange.take(index, await self._read(connection))

    async def _read(self, connection: Any) -> Any:
        try:
            return await connection.read_response()
        except IN_BAND as error:
            return error

    async def _check_fitness(self, connection: Any) -> None:
        await connection.send_packed_command(FITNESS_QUESTIONS, check_health=False)
        for _ in FITNESS_QUESTIONS:
            check_fitness(await self._read(connection), self.where)
        self._fit = True

    async def aclose(self) -> None:
        for pool in (self._pool, self._listener_pool):
            if pool is not None:
                await pool.disconnect()
