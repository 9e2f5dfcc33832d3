"""Run calls over redis-py, sync or async; redis-py's own exceptions do not leave this module.

A link tries again, with backoff and jitter, what `exchange` says may be sent again. It never leaves a half-read
connection in its pool, so no answer can reach another caller. Where a server was away, refused to serve or is the
master no more, the link drops all its idle connections and counts up its `epoch`: whoever holds a connection of its own
from an earlier epoch (a subscription, a blocking read) makes a new one.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from rzsched import embedded, sentinel
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
from rzsched.urls import check_url, describe_url, is_sentinel

FAILOVER_S = 10.0
"""How long a call goes on trying while sentinels make another server the master."""
SILENCE_S = 5.0
"""How long a server behind sentinels may take to answer: a master that stands still gives no other sign."""
LOOK_S = 2.0
"""How often a link in use asks its sentinels where the master is."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How patient a link is. `retry_s` bounds how long it goes on trying; 0 leaves retrying to its owner.

    Otherwise it tries at least twice, since the first try may have met a connection that leads nowhere.
    """

    connect_timeout_s: float = 3.0
    command_timeout_s: float | None = 15.0
    retry_s: float = 1.0
    max_connections: int = 1000


def backoff_delays(total_s: float, first_s: float = 0.02, most_s: float = 1.0) -> Iterator[float]:
    """Yield jittered waits that grow from `first_s` to `most_s`, until they add up to `total_s`."""
    spent, step = 0.0, first_s
    while spent < total_s:
        delay = step * random.uniform(0.5, 1.5)
        spent += delay
        step = min(step * 2, most_s)
        yield delay


def _pool_arguments(url: str, settings: LinkSettings, said: dict[str, Any]) -> dict[str, Any]:
    timeout_s = settings.command_timeout_s
    if is_sentinel(url):
        timeout_s = min(timeout_s or SILENCE_S, SILENCE_S)
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": settings.max_connections,
        **said,
    }


_ANSWER_FORM = {"protocol": 2, "decode_responses": False}
"""What the readers of answers rely on: no option in a URL may change it."""


def make_pool(url: str, settings: LinkSettings) -> Any:
    """Make a pool of blocking connections to what a URL names."""
    arguments = _pool_arguments(url, settings, {})
    if is_sentinel(url):
        pool: Any = sentinel.master_pool(url, arguments)
    else:
        pool = redis.ConnectionPool.from_url(embedded.resolve(url), **arguments)
    pool.connection_kwargs.update(_ANSWER_FORM)
    return pool


async def make_async_pool(url: str, settings: LinkSettings, said: dict[str, Any]) -> Any:
    """Make a pool of asyncio connections to what a URL names."""
    arguments = _pool_arguments(url, settings, said)
    if is_sentinel(url):
        pool: Any = sentinel.async_master_pool(url, arguments)
    else:
        if url.startswith("embedded:"):
            # Starting an embedded server takes a moment, which the loop should not stand still for.
            url = await asyncio.to_thread(embedded.resolve, url)
        pool = redis.asyncio.ConnectionPool.from_url(url, **arguments)
    pool.connection_kwargs.update(_ANSWER_FORM, **said)
    return pool


class _Persistence:
    """Whether and when to try again, for one exchange."""

    def __init__(self, settings: LinkSettings, url: str, where: str) -> None:
        self._retry_s = settings.retry_s
        self._fails_over = is_sentinel(url)
        self._delays = backoff_delays(math.inf)
        self._where = where
        self._begun_s = time.monotonic()
        self._tries = 0

    def delay_after(self, exchange: Exchange, error: Exception | None) -> float | None:
        """Say how long to wait before the next try; None: it is over, and every call has its outcome."""
        self._tries += 1
        if error is not None:
            exchange.lost(error)
        failure = error or exchange.refusal
        if exchange.done or failure is None:
            return None
        delay = self._delay(failure)
        if delay is None:
            exchange.give_up(failure)
        return delay

    def _delay(self, failure: Exception) -> float | None:
        if not self._retry_s or isinstance(translate(failure, self._where), CredentialsRefused | ServerUnsuitable):
            return None
        patient = self._fails_over and not isinstance(failure, sentinel.NoMaster)
        left_s = self._begun_s + (FAILOVER_S if patient else self._retry_s) - time.monotonic()
        if left_s <= 0 and self._tries > 1:
            return None
        return min(next(self._delays), max(left_s, 0.01))


class _Sight:
    """When a link last asked where the master is."""

    def __init__(self, url: str) -> None:
        self._look_at_s = 0.0 if is_sentinel(url) else math.inf

    def is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return False
        # Sentinels that do not answer hold callers up: those are asked less often.
        self._look_at_s = now_s + LOOK_S * 5
        return True

    def seen(self) -> None:
        self._look_at_s = time.monotonic() + LOOK_S


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
        self._fit = False
        self._sight = _Sight(url)
        self.epoch = 0

    @property
    def pool(self) -> Any:
        if self._pool is None:
            self._pool = make_pool(self._url, self._settings)
        return self._pool

    def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return _raise_first(self.outcomes(steps))

    def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip; give each one's answer, or the exception it ends with."""
        exchange = Exchange(steps, self.where)
        persistence = _Persistence(self._settings, self._url, self.where)
        while not exchange.done:
            failure = self._try(exchange)
            if failure is not None or exchange.refused:
                self._move_on()
            delay = persistence.delay_after(exchange, failure)
            if delay is not None:
                time.sleep(delay)
        return exchange.outcomes

    def _move_on(self) -> None:
        """Leave all connections behind: those that idle are likely dead too, or a demoted server's."""
        self.epoch += 1
        self._fit = False
        if self._pool is not None:
            self._pool.disconnect(inuse_connections=False)

    def look(self) -> None:
        """Find out, now and then, whether the master has moved."""
        if self._pool is not None and self._sight.is_due():
            with contextlib.suppress(*FOREIGN):  # else the master may serve on while its sentinels are away
                if self._pool.has_moved():
                    self._move_on()
                self._sight.seen()

    def _try(self, exchange: Exchange) -> Exception | None:
        exchange.begin()
        self.look()
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
            if exchange.refused:
                connection.disconnect()  # what does not serve now may never: the next one may reach another server
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
        if isinstance(self._pool, sentinel.MasterPool):
            self._pool.close_all()
        elif self._pool is not None:
            self._pool.disconnect()


class AsyncLink:
    """Calls over a pool of asyncio connections, for one event loop."""

    def __init__(self, url: str, settings: LinkSettings) -> None:
        self._url = check_url(url)
        self.where = describe_url(url)
        self._settings = settings
        self._pool: Any = None
        self._listener_pool: Any = None
        self._fit = False
        self._sight = _Sight(url)
        self.epoch = 0

    async def pool(self) -> Any:
        if self._pool is None:
            pool = await make_async_pool(self._url, self._settings, {})
            self._pool = self._pool or pool
        return self._pool

    async def listener_pool(self) -> Any:
        """Give the pool for subscriptions, whose connections block. It is the caller who bounds what it waits for.

        With a timeout of the socket's redis-py sends under `asyncio.wait_for`, which in Python 3.11 may swallow a
        cancellation: a cancelled waiter would wait on.
        """
        if self._listener_pool is None:
            pool = await make_async_pool(self._url, self._settings, {"socket_timeout": None})
            self._listener_pool = self._listener_pool or pool
        return self._listener_pool

    async def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return _raise_first(await self.outcomes(steps))

    async def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip; give each one's answer, or the exception it ends with."""
        exchange = Exchange(steps, self.where)
        persistence = _Persistence(self._settings, self._url, self.where)
        while not exchange.done:
            failure = await self._try(exchange)
            if failure is not None or exchange.refused:
                await self._move_on()
            delay = persistence.delay_after(exchange, failure)
            if delay is not None:
                await asyncio.sleep(delay)
        return exchange.outcomes

    async def _move_on(self) -> None:
        """Leave all connections behind: those that idle are likely dead too, or a demoted server's."""
        self.epoch += 1
        self._fit = False
        if self._pool is not None:
            await self._pool.disconnect(inuse_connections=False)

    async def look(self) -> None:
        """Find out, now and then, whether the master has moved."""
        if self._pool is not None and self._sight.is_due():
            with contextlib.suppress(*FOREIGN):  # else the master may serve on while its sentinels are away
                if await self._pool.has_moved():
                    await self._move_on()
                self._sight.seen()

    async def _try(self, exchange: Exchange) -> Exception | None:
        exchange.begin()
        await self.look()
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
            if exchange.refused:
                await connection.disconnect(nowait=True)
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
            if isinstance(pool, sentinel.AsyncMasterPool):
                await pool.close_all()
            elif pool is not None:
                await pool.disconnect()
