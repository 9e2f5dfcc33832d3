"""The blocking read of an idle worker: it waits on all ready streams, so that one worker, not all, wakes for a job.

The read has a connection of its own without a socket timeout, for a longer blocking read than any such timeout is
normal here. It is ended by `CLIENT UNBLOCK`, never by dropping the connection: so an entry is either
delivered and known to us, or not delivered.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import ResponseError

from rzsched import calls
from rzsched.connect import AsyncLink
from rzsched.errors import RzschedError
from rzsched.keys import GROUP, Partition
from rzsched.links import AnyAsyncLink
from rzsched.refusals import translate

BLOCK_S = 2.0
"""How long one read blocks at most; a half-open connection is noticed this much later, plus a grace."""
OF_A_LEASE = 0.5
"""A read ends before the leases that were renewed, every third of one, while it began. Else the read that a cut-off
worker has left on the server, where the longest wait is served first, would take the very jobs that it just lost."""
GRACE_S = 3.0
UNBLOCK_S = 2.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a read brought: entries of one partition, as `priority/stream id`, pending for this worker now."""

    place: Partition
    entries: list[str]


class GroupsGone(Exception):
    """Tell that the server has lost a stream or its group: they must be made again."""


class BlockingReader:
    """Read new entries of some partitions for one consumer, one read at a time."""

    def __init__(self, link: AnyAsyncLink, consumer: str, lease_s: float) -> None:
        self._link = link
        self._block_s = min(BLOCK_S, lease_s * OF_A_LEASE)
        self._server: AsyncLink | None = None
        self._consumer = consumer
        self._connection: Any = None
        self._client_id: int | None = None
        self._epoch = 0
        self._done = asyncio.Event()
        self._done.set()

    async def read(self, places: Sequence[Partition]) -> list[Delivery]:
        """Wait for an entry, for a while; give what came. Raises GroupsGone, or what a link raises."""
        streams = {stream: place for place in places for stream in place.ready}
        block_ms = int(self._block_s * 1000)
        command = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", 1, "BLOCK", block_ms, "STREAMS", *streams,
                   *(">" for _ in streams))  # fmt: skip
        try:
            await self._link.look()
            if self._server is not None and self._epoch != self._server.epoch:
                await self._drop()  # the link has left that server, where nothing may ever come
            if self._connection is None:
                await self._connect(places[0])
            connection = self._connection
            self._done.clear()
            await connection.send_command(*command)
            reply = await _answer(connection, self._block_s + GRACE_S)
        except ResponseError as error:
            if str(error).startswith("NOGROUP"):
                raise GroupsGone from None
            await self._doubt()  # a demoted server says READONLY: the next connection may reach another one
            if str(error).startswith("UNBLOCKED"):  # the stream is gone, or the server has been demoted
                raise GroupsGone from None
            raise translate(error, self._link.where) from None
        except (redis.RedisError, OSError) as error:
            await self._doubt()
            raise translate(error, self._link.where) from None
        finally:
            self._done.set()
        return [_delivery(streams[stream.decode()], stream.decode(), entries) for stream, entries in reply or []]

    async def _connect(self, place: Partition) -> None:
        self._server = await self._link.at(place.base)
        self._epoch = self._server.epoch
        pool = await self._server.pool()
        connection = pool.make_connection()
        await connection.connect()
        await connection.send_command("CLIENT", "ID")
        self._client_id = int(await connection.read_response())
        self._connection = connection

    async def unblock(self) -> None:
        """End a read that is under way; it gives what it has, mostly nothing."""
        while not self._done.is_set():
            unblock = calls.command("CLIENT", "UNBLOCK", self._client_id or 0, read=int)
            assert self._server is not None
            (done,) = await self._server.execute([unblock])
            if done:
                with contextlib.suppress(TimeoutError):  # else the answer is lost on its way
                    await asyncio.wait_for(self._done.wait(), UNBLOCK_S)
                return
            await asyncio.sleep(0)  # else the server had not come to the read yet, or it is just ending

    async def _doubt(self) -> None:
        self._link.doubt()
        await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        with contextlib.suppress(RzschedError):  # the server is away, and the read with it
            await self.unblock()
        await self._drop()


async def _answer(connection: Any, limit_s: float) -> Any:
    """Wait for the reply to a blocking read: None where nothing came. Raises TimeoutError where the server is silent.

    redis-py gives None for both. After silence the reply is still to come, and the next read would take it for its own.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    reply = await connection.read_response(timeout=limit_s)
    if reply is None and loop.time() - began > 0.99 * limit_s:
        raise TimeoutError(f"no answer in {limit_s:g} s")
    return reply


def _delivery(place: Partition, stream: str, entries: list[Any]) -> Delivery:
    priority = stream[-1]
    return Delivery(place, [f"{priority}/{entry[0].decode()}" for entry in entries])
