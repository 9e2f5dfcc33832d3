"""A way to the server that can swallow bytes: connections stay open, and nothing comes through."""

import asyncio
import threading
from contextlib import suppress


class Proxy:
    """Pass connections on to a port, on a loop of its own thread."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._swallows = False
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._ways: set[asyncio.Task[None]] = set()
        self.port = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def _serve(self) -> None:
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        for way in list(self._ways):
            way.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = asyncio.current_task()
        assert way is not None
        self._ways.add(way)
        ends = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            ends.append(server_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, server_writer))
                both.create_task(self._pass(server_reader, writer))
        except* (OSError, _WayEnded):
            pass  # one side has gone, and the other goes with it
        finally:
            for end in ends:
                end.transport.abort()
            self._ways.discard(way)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        has_swallowed = False
        while True:
            data = await reader.read(1 << 16)
            if not data or (has_swallowed and not self._swallows):
                raise _WayEnded  # what follows a gap would make no sense to the other side
            if self._swallows:
                has_swallowed = True
                continue
            writer.write(data)
            await writer.drain()

    def swallow(self) -> None:
        self._swallows = True

    def pass_on(self) -> None:
        self._swallows = False

    def close(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)


class _WayEnded(Exception):
    """One side has closed, or bytes are missing."""
