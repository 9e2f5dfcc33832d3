"""A wire to a server that can go dead: bytes vanish, and neither end is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tests.looped import LoopedServer

REQUESTS, ANSWERS = "requests", "answers"


@dataclass(eq=False)
class _Connection:
    swallowed: set[str]


class Wire(LoopedServer):
    """A proxy before a server, on a thread of its own."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._server_port = port
        self._connections: set[_Connection] = set()
        self._cut: set[str] = set()

    def freeze(self, *directions: str) -> None:
        """Have all connections there are now lose the bytes of a direction, for ever; new ones work."""

        def swallow() -> None:
            for connection in self._connections:
                connection.swallowed.update(directions)

        self._call(swallow)

    def cut(self) -> None:
        """Let nothing pass any more, on new connections neither."""
        self._call(lambda: self._cut.update((REQUESTS, ANSWERS)))
        self.freeze(REQUESTS, ANSWERS)

    def heal(self) -> None:
        """Have new connections work; those that were cut stay dead."""
        self._call(self._cut.clear)

    def _call(self, what: Callable[[], None]) -> None:
        done = threading.Event()

        def call() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(10)

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(set(self._cut))
        self._connections.add(connection)
        far_writer: asyncio.StreamWriter | None = None
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            await asyncio.wait(
                [
                    asyncio.create_task(self._pass_on(connection, REQUESTS, reader, far_writer)),
                    asyncio.create_task(self._pass_on(connection, ANSWERS, far_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        except OSError:
            pass  # the server is not there: the connection ends
        finally:
            self._connections.discard(connection)
            for end in (writer, far_writer):
                if end is not None:
                    end.close()

    async def _pass_on(
        self, connection: _Connection, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if direction not in connection.swallowed:
                    writer.write(data)
        except OSError:
            pass  # one end has gone, as it may
