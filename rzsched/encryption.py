"""Connections over TLS that share what they need for it.

redis-py makes a context for each connection, which reads every CA of the system: up to tenths of a second, in which an
event loop does nothing else. Connections that are told the same share one here, as long as the files stay the same.
"""

import contextlib
import os
import ssl
from typing import Any

import redis
import redis.asyncio

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_MOST = 8
_contexts: dict[str, ssl.SSLContext] = {}


class _Socket(ssl.SSLSocket):
    """A socket that tells why the other end has closed it.

    A server of TLS 1.3 sees the client's certificate when the client's handshake is over already. If it refuses it, the
    client hears of a closed connection when it next writes, and the reason lies there unread.
    """

    def sendall(self, data: Any, flags: int = 0) -> None:
        try:
            super().sendall(data, flags)
        except OSError:
            self.settimeout(0)
            with contextlib.suppress(ssl.SSLWantReadError):
                self.recv(1)  # raises the reason
            raise


def context_of(options: dict[str, Any]) -> ssl.SSLContext:
    """Give the context that these `ssl_…` options of redis-py's mean, made anew when a file has been replaced."""
    key = repr((sorted(options.items()), [_stamp(options.get(name)) for name in _FILES]))
    found = _contexts.get(key)
    if found is None:
        found = redis.asyncio.SSLConnection(**options).ssl_context.get()
        found.sslsocket_class = _Socket
        if len(_contexts) >= _MOST:
            _contexts.clear()
        _contexts[key] = found
    return found


def _stamp(path: str | None) -> tuple[int, int] | None:
    if path is None:
        return None
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ino


def tls_options(said: dict[str, Any]) -> dict[str, Any]:
    """Pick what is said of TLS. redis-py says some things that are not wanted too, which an event loop cannot do."""
    told = {name: value for name, value in said.items() if name.startswith("ssl_") and value is not None}
    return {name: value for name, value in told.items() if value or not name.startswith("ssl_validate_ocsp")}


class TlsConnection(redis.SSLConnection):
    """A blocking connection."""

    def __init__(self, **said: Any) -> None:
        super().__init__(**said)
        self._options = tls_options(said)

    def _wrap_socket_with_ssl(self, sock: Any) -> Any:
        try:
            context = context_of(self._options)
        except TypeError:  # what only blocking connections can do, as asking for revoked certificates
            return super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        return context.wrap_socket(sock, server_hostname=self.host)


class AsyncTlsConnection(redis.asyncio.SSLConnection):
    """A connection of an event loop."""

    def __init__(self, **said: Any) -> None:
        super().__init__(**said)
        self._options = tls_options(said)

    def _connection_arguments(self) -> Any:
        self.ssl_context.context = context_of(self._options)
        return super()._connection_arguments()

    async def disconnect(self, nowait: bool = False, *args: Any, **more: Any) -> None:
        # To say good-bye takes TLS a while, and nobody waits for it here: the loop may end before.
        if nowait and self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(nowait, *args, **more)
