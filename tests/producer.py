"""What producer tests share: one face for both clients, a hand that plays the worker, a front before the server."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from rzsched import calls, keys
from rzsched.aio import AsyncClient
from rzsched.calls import Claimed
from rzsched.client import Client
from rzsched.connect import LinkSettings, SyncLink
from rzsched.names import split_job_id
from tests.looped import LoopedServer

LEASE_MS = 60_000
Client_ = Client | AsyncClient


class Face:
    """Either client, awaited: the plain one runs in a thread."""

    def __init__(self, client: Client_) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.client, name)
        if isinstance(self.client, AsyncClient):
            return method  # type: ignore[no-any-return]
        return lambda *args, **kwargs: asyncio.to_thread(method, *args, **kwargs)

    async def aclose(self) -> None:
        if isinstance(self.client, AsyncClient):
            await self.client.aclose()
        else:
            self.client.close()


class Hand:
    """Play a worker by hand: claim jobs, end them."""

    def __init__(self, url: str, worker: str = "hand", namespace: str = "rz") -> None:
        self._link = SyncLink(url, LinkSettings())
        self._namespace = namespace
        self.worker = worker

    def claim(self, queue: str = "default", limit: int = 1) -> list[Claimed]:
        place = keys.partition(self._namespace, queue, 0)
        (runs,) = self._link.execute([calls.claim(place, self.worker, LEASE_MS, limit, "")])
        return runs  # type: ignore[no-any-return]

    def end(self, run: Claimed, outcome: str, a: str | bytes = "", b: str = "", c: str = "") -> dict[str, str]:
        place = keys.partition(self._namespace, *split_job_id(run.id))
        outcomes = [(outcome, run.id, run.fence, run.entry, a, b, c)]
        (finished,) = self._link.execute([calls.finish(place, self.worker, LEASE_MS, 0, "", outcomes)])
        return finished.notes  # type: ignore[no-any-return]

    def succeed(self, queue: str = "default", result: bytes = b"", key: str = "") -> Claimed:
        (run,) = self.claim(queue)
        assert self.end(run, "SUCCEEDED", result, "3600000", key) == {}
        return run

    def die(self, queue: str = "default", error: str = "boom", key: str = "") -> Claimed:
        (run,) = self.claim(queue)
        assert self.end(run, "DEAD", error, "", key) == {}
        return run

    def die_all(self, queue: str, count: int) -> None:
        """Claim and bury many jobs in few calls."""
        place = keys.partition(self._namespace, queue, 0)
        left = count
        while left:
            runs = self.claim(queue, 500)
            assert runs, f"{left} jobs are missing"
            outcomes = [("DEAD", run.id, run.fence, run.entry, "boom", "", "") for run in runs]
            self._link.execute([calls.finish(place, self.worker, LEASE_MS, 0, "", outcomes)])
            left -= len(runs)

    def close(self) -> None:
        self._link.close()


class Front(LoopedServer):
    """A server in front of a server, which adds `delay_s`, refuses commands, or cuts a connection instead of answering.

    `refuse` gives the raw reply to a command, or None to pass it on; `cut` tells the commands that are
    passed on and whose answer never comes.
    """

    def __init__(self, port: int, delay_s: float = 0) -> None:
        super().__init__()
        self._server_port = port
        self._delay_s = delay_s
        self.refuse: Callable[[list[bytes]], bytes | None] = lambda command: None
        self.cut: Callable[[list[bytes]], bool] = lambda command: False
        self.connections = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        cutting = asyncio.Event()
        server_reader, server_writer = None, None
        answers = None
        try:
            if self._server_port:
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
                answers = asyncio.create_task(self._answer(server_reader, writer, cutting))
            while (found := await _read_command(reader)) is not None:
                raw, command = found
                refused = self.refuse(command)
                if refused is not None:
                    writer.write(refused)
                    continue
                if self.cut(command):
                    cutting.set()
                assert server_writer is not None
                self._later(server_writer.write, raw)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections -= 1
            for end in (writer, server_writer):
                if end is not None:
                    end.close()
            if answers is not None:
                answers.cancel()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cutting: asyncio.Event) -> None:
        try:
            while data := await reader.read(1 << 16):
                if cutting.is_set():
                    writer.transport.abort()
                    return
                self._later(writer.write, data)
        except OSError:
            pass

    def _later(self, write: Callable[[bytes], None], data: bytes) -> None:
        if self._delay_s:
            self._loop.call_later(self._delay_s / 2, write, data)
        else:
            write(data)


async def _read_command(reader: asyncio.StreamReader) -> tuple[bytes, list[bytes]] | None:
    head = await reader.readline()
    if not head:
        return None
    raw, words = [head], []
    for _ in range(int(head[1:])):
        size = await reader.readline()
        word = await reader.readexactly(int(size[1:]) + 2)
        raw += (size, word)
        words.append(word[:-2])
    return b"".join(raw), words


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@contextmanager
def closing_hand(url: str, namespace: str = "rz") -> Iterator[Hand]:
    hand = Hand(url, namespace=namespace)
    try:
        yield hand
    finally:
        hand.close()


def all_that_shows(error: BaseException) -> str:
    """Give all that a log, a debugger or an error tracker could show of an error, its frames' locals included."""
    shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return f"{shown}\n{error!r}\n{error}\n{error.args!r}\n{vars(error)!r}\n{error.__cause__!r}\n{error.__context__!r}"
