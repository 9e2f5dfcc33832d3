"""A wire to a server that can go dead: bytes vanish, and neither end is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

REQUESTS, ANSWERS = "requests", "answers"


@dataclass(eq=False)
class _Connection:
    swallowed: set[str]


class Wire:
    """A proxy before a server, on a thread of its own."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.port = 0
        self._connections: set[_Connection] = set()
        self._cut: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

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

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
