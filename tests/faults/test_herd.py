"""Two hundred links lose their server at once: when it is back they do not come all at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from rzsched import calls
from rzsched.connect import AsyncLink, LinkSettings, backoff_delays
from rzsched.errors import ConnectionFailed
from tests.conftest import OwnServer
from tests.servers import Server

LINKS = 200
WINDOW_S = 0.1


class Door:
    """Stands before a server and notes who comes when."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.came: list[float] = []

    async def open(self, port: int = 0) -> asyncio.Server:
        return await asyncio.start_server(self._meet, "127.0.0.1", port, backlog=1000)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.append(time.monotonic())
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:
            writer.close()  # as a server does that is still coming up
            return
        await asyncio.wait([
            asyncio.create_task(_pass_on(reader, far_writer)), asyncio.create_task(_pass_on(far_reader, writer)),
        ], return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        writer.close()
        far_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    except OSError:
        pass  # one of the two has gone
    finally:
        writer.close()


async def regain(link: AsyncLink) -> None:
    """Try again until the server answers, as a worker's pump does."""
    for delay in backoff_delays(float("inf")):
        try:
            await link.execute([calls.command("PING", read=bytes)])
            return
        except ConnectionFailed:
            await asyncio.sleep(delay)


async def test_links_come_back_spread_over_time(own_server: OwnServer) -> None:
    server = own_server("--maxclients", "1000")
    door = Door(server)
    listener = await door.open()
    port = listener.sockets[0].getsockname()[1]
    links = [AsyncLink(f"redis://127.0.0.1:{port}/0", LinkSettings(retry_s=0)) for _ in range(LINKS)]
    await asyncio.gather(*map(regain, links))
    server.kill()
    back = asyncio.gather(*map(regain, links))
    await asyncio.sleep(2)  # down time: the waits have grown
    await asyncio.to_thread(server.restart)
    began = time.monotonic()
    await back
    took_s = time.monotonic() - began
    windows = Counter(int((came - began) / WINDOW_S) for came in door.came if came >= began)
    assert took_s < 5
    assert sum(windows.values()) >= LINKS
    assert max(windows.values()) < LINKS / 2, f"too many came within {WINDOW_S} s: {sorted(windows.items())}"
    for link in links:
        await link.aclose()
    listener.close()
