"""Run calls over redis-py, sync or async; redis-py's own exceptions do not leave this module.

A link tries again, with backoff and jitter, what `exchange` says may be sent again. It never leaves a half-read
connection in its pool, so no answer can reach another caller. Where a server was away, refused to serve or is the
master no more, the link drops all its idle connections and counts up its `epoch`: whoever holds a connection of its own
from an earlier epoch (a subscription, a blocking read) makes a new one.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from rzsched import sentinel
from rzsched.calls import Argument
from rzsched.copies import Copies, address_of
from rzsched.endings import end_tasks
from rzsched.exchange import FITNESS_QUESTIONS, Exchange, Step, check_fitness
from rzsched.patience import LOOK_S, Persistence, Sight, backoff_delays, pause
from rzsched.pools import LinkSettings, make_async_pool, make_pool
from rzsched.refusals import FOREIGN, IN_BAND
from rzsched.urls import check_url, describe_url

__all__ = ["AsyncLink", "LinkSettings", "SyncLink", "backoff_delays"]


def raise_first(outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


class SyncLink:
    """Calls over a pool of blocking connections. Threads may share it; after a fork the child gets its own pool."""

    apart = False
    """Whether each partition may be at a server of its own."""

    def __init__(self, url: str, settings: LinkSettings) -> None:
        self._url = check_url(url)
        self.where = describe_url(url)
        self._settings = settings
        self._pool: Any = None
        self._fit = not settings.check_fitness
        self._sight = Sight(url)
        self._copies = Copies(self._url)
        self.epoch = 0

    @property
    def pool(self) -> Any:
        if self._pool is None:
            self._pool = make_pool(self._url, self._settings)
        return self._pool

    def listener_pool(self) -> Any:
        """Give the pool for subscriptions; its connections have the timeouts of all others."""
        return self.pool

    def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return raise_first(self.outcomes(steps))

    def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip; give each one's answer, or the exception it ends with."""
        exchange = Exchange(steps, self.where)
        persistence = Persistence(self._settings.retry_s, self._url, self.where)
        while not exchange.done:
            failure = self.attempt(exchange)
            delay = persistence.delay_after(exchange, failure)
            if delay is not None:
                pause(delay)
        return exchange.outcomes

    def move_on(self) -> None:
        """Leave all connections behind: those that idle are likely dead too, or a demoted server's."""
        self.epoch += 1
        self._fit = not self._settings.check_fitness
        if self._pool is not None:
            self._pool.disconnect(inuse_connections=False)

    def look(self) -> None:
        """Find out, now and then, whether the master has moved."""
        if self._pool is not None and self._sight.is_due():
            try:
                if self._sight.has_moved(self._pool.known_master, self._pool.find_master()):
                    self.move_on()
            except FOREIGN:
                pass  # the master may serve on while its sentinels are away
            finally:
                self._sight.looked()

    def attempt(self, exchange: Exchange) -> Exception | None:
        """Try once; give what went wrong on the way."""
        failure = None
        try:
            for _ in self.conversation(exchange):
                pass
        except FOREIGN as error:
            failure = error
        if failure is not None or exchange.refused:
            self.move_on()
        return failure

    def conversation(self, exchange: Exchange) -> Iterator[None]:
        """Try once, in two steps, so that several servers may work at a time: send all, then read the answers."""
        exchange.begin()
        self.look()
        connection = self.pool.get_connection()
        try:
            if not self._fit:
                self._check_fitness(connection)
            asked = self._send(connection, exchange)
            yield
            self._receive(connection, exchange, asked)
            if exchange.wants_scripts:
                self._receive(connection, exchange, self._send(connection, exchange))
        except BaseException:
            connection.disconnect()
            raise
        finally:
            if exchange.refused:
                connection.disconnect()  # what does not serve now may never: the next one may reach another server
            self.pool.release(connection)

    def _send(self, connection: Any, exchange: Exchange) -> list[int | None]:
        asked = []
        for indexes, parcel in exchange.parcels():
            asked += indexes
            exchange.sent = True
            connection.send_packed_command([parcel], check_health=False)
        return asked

    def _receive(self, connection: Any, exchange: Exchange, asked: list[int | None]) -> None:
        for index in asked:
            exchange.take(index, self._read(connection))
        if exchange.is_waited:
            seen = address_of(connection), exchange.attached
            exchange.vouch(self._copies.lack(*seen) if self._copies.note(*seen) else "")

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

    apart = False
    """Whether each partition may be at a server of its own."""

    def __init__(self, url: str, settings: LinkSettings) -> None:
        self._url = check_url(url)
        self.where = describe_url(url)
        self._settings = settings
        self._pool: Any = None
        self._listener_pool: Any = None
        self._fit = not settings.check_fitness
        self._sight = Sight(url)
        self._looking = asyncio.Lock()
        self._copies = Copies(self._url)
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

    async def at(self, route: Argument) -> "AsyncLink":
        """Give the link to the server that holds a key: for what must stay on one connection."""
        return self

    def doubt(self) -> None:
        """Hear that a server was not what it seemed to be; here there is no other."""

    async def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip and give their answers. Raises ConnectionFailed or ServerUnsuitable."""
        return raise_first(await self.outcomes(steps))

    async def outcomes(self, steps: Sequence[Step]) -> list[Any]:
        """Run calls in one round trip; give each one's answer, or the exception it ends with."""
        exchange = Exchange(steps, self.where)
        persistence = Persistence(self._settings.retry_s, self._url, self.where)
        while not exchange.done:
            failure = await self.attempt(exchange)
            delay = persistence.delay_after(exchange, failure)
            if delay is not None:
                await asyncio.sleep(delay)
        return exchange.outcomes

    async def move_on(self) -> None:
        """Leave all connections behind: those that idle are likely dead too, or a demoted server's."""
        self.epoch += 1
        self._fit = not self._settings.check_fitness
        if self._pool is not None:
            await self._pool.disconnect(inuse_connections=False)

    async def look(self) -> None:
        """Find out, now and then, whether the master has moved.

        Who comes meanwhile waits for the answer too: the connection it would get may be one to a server that stands
        still.
        """
        if self._pool is None or not self._sight.is_needed:
            return
        async with self._looking:
            if self._sight.is_due():
                await self._look(self._pool)

    async def _look(self, pool: sentinel.AsyncMasterPool) -> None:
        try:
            if self._sight.has_moved(pool.known_master, await pool.find_master()):
                await self.move_on()
        except FOREIGN:
            pass  # the master may serve on while its sentinels are away
        finally:
            self._sight.looked()

    async def attempt(self, exchange: Exchange) -> Exception | None:
        """Try once; give what went wrong on the way."""
        exchange.begin()
        await self.look()
        failure = None
        try:
            await self._attempt(exchange)
        except FOREIGN as error:
            failure = error
        if failure is not None or exchange.refused:
            await self.move_on()
        return failure

    async def _attempt(self, exchange: Exchange) -> None:
        pool = await self.pool()
        connection = await pool.get_connection()
        try:
            if not self._fit:
                await self._check_fitness(connection)
            await self._ask(connection, exchange)
            if exchange.wants_scripts:
                await self._ask(connection, exchange)
        except BaseException:
            # Not awaited: a cancelled task may not await, and the answers still to come must find nobody.
            await connection.disconnect(nowait=True)
            raise
        finally:
            if exchange.refused:
                await connection.disconnect(nowait=True)
            await pool.release(connection)

    async def _ask(self, connection: Any, exchange: Exchange) -> None:
        """Talk; behind Sentinel, what a master that has been replaced still owes is not waited for."""
        if not self._sight.is_needed:
            return await self._talk(connection, exchange)
        talk = asyncio.create_task(self._talk(connection, exchange))
        try:
            while not (await asyncio.wait({talk}, timeout=LOOK_S))[0]:
                await self.look()
                if address_of(connection) != self._pool.known_master and not talk.done():
                    raise sentinel.MasterAway("another server was made the master while this one kept silent")
            talk.result()
        finally:
            await end_tasks([talk])

    async def _talk(self, connection: Any, exchange: Exchange) -> None:
        asked = []
        for indexes, parcel in exchange.parcels():
            asked += indexes
            exchange.sent = True
            await connection.send_packed_command([parcel], check_health=False)
        for index in asked:
            exchange.take(index, await self._read(connection))
        if exchange.is_waited:
            seen = address_of(connection), exchange.attached
            exchange.vouch(await asyncio.to_thread(self._copies.lack, *seen) if self._copies.note(*seen) else "")

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
