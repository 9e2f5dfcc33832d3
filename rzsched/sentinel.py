"""Pools of connections to the master that sentinels name, wherever it moves.

Every new connection asks a sentinel where the master is, and then the server itself whether it is one (`ROLE`), as
clients of Sentinel should: a sentinel may not have heard of a failover yet. What stays open is looked at by
`find_master`: a master that was cut off from its sentinels answers as ever, and nothing would tell its clients.
A connection to another server than the master that is known now does not go back into the pool.
"""

import contextlib
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.retry import Retry

from rzsched.encryption import AsyncTlsConnection, TlsConnection
from rzsched.handshakes import tls_trouble
from rzsched.urls import SentinelUrl, read_sentinel_url

ASK_S = 1.0
"""How long a sentinel may take to be reached, and to answer. The next one is asked then."""
_ASKING_FAILED = (redis.ConnectionError, redis.TimeoutError, ResponseError, OSError)
Address = tuple[str, int]


class NoMaster(redis.ConnectionError):
    """Tell that no sentinel names a master, for a reason that a failover does not explain."""


class MasterAway(redis.ConnectionError):
    """Tell that there is no master just now: the sentinels see it down, or it has been demoted."""


class _Survey:
    """What the sentinels said of a service, one after the other."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._is_down = self._has_answer = False
        self._refused: Exception | None = None

    def take(self, masters: Any) -> Address | None:
        self._has_answer = True
        state = masters.get(self._service)
        if state is None:
            return None
        if state["is_sdown"] or state["is_odown"] or not state["is_master"]:
            self._is_down = True
            return None
        return state["ip"], state["port"]

    def failed(self, error: Exception) -> None:
        if isinstance(error, AuthenticationError | NoPermissionError):
            self._refused = AuthenticationError("a sentinel refused the user name or password")
        elif tls_trouble(str(error)):
            self._refused = NoMaster(str(error))

    def verdict(self) -> Exception:
        if self._is_down:
            return MasterAway("its sentinels see the master down")
        if self._has_answer:
            return NoMaster("its sentinels know no service of that name")
        if self._refused is not None:
            return self._refused
        return NoMaster("none of its sentinels answers")


class _Sentinels(redis.sentinel.Sentinel):
    def discover_master(self, service_name: str, most: int | None = None) -> Address:
        """Ask one sentinel after the other, `most` of them, for the master. Who does not answer is asked last then."""
        survey = _Survey(service_name)
        for sentinel in self.sentinels[:most]:
            try:
                found = survey.take(sentinel.sentinel_masters())
            except _ASKING_FAILED as error:
                survey.failed(error)
                found = None
            if found is not None:
                return found
            _put_last(self.sentinels, sentinel)
        raise survey.verdict()


class _AsyncSentinels(redis.asyncio.sentinel.Sentinel):
    async def discover_master(self, service_name: str, most: int | None = None) -> Address:
        survey = _Survey(service_name)
        for sentinel in self.sentinels[:most]:
            try:
                found = survey.take(await sentinel.sentinel_masters())
            except _ASKING_FAILED as error:
                survey.failed(error)
                found = None
            if found is not None:
                return found
            _put_last(self.sentinels, sentinel)
        raise survey.verdict()


def _put_last(sentinels: list[Any], sentinel: Any) -> None:
    with contextlib.suppress(ValueError):  # another caller is doing the same
        sentinels.remove(sentinel)
        sentinels.append(sentinel)


def _check_role(role: Any) -> None:
    if role[0] != b"master":
        raise MasterAway("the server its sentinels name is no master")


class _MasterConnection(redis.sentinel.SentinelManagedConnection):
    # A refused write is for the link to judge: here it would cost the other answers of the same round trip.
    read_response = Connection.read_response

    def connect_to(self, address: Address) -> None:
        super().connect_to(address)  # type: ignore[no-untyped-call]
        try:
            self.send_command("ROLE")  # type: ignore[no-untyped-call]
            _check_role(self.read_response())
        except NoPermissionError:
            pass  # a user who may not ask takes the sentinel's word
        except BaseException:
            self.disconnect()  # type: ignore[no-untyped-call]
            raise


class _MasterTlsConnection(_MasterConnection, TlsConnection, redis.sentinel.SentinelManagedSSLConnection):
    pass


class _AsyncMasterConnection(redis.asyncio.sentinel.SentinelManagedConnection):
    read_response = redis.asyncio.Connection.read_response  # type: ignore[assignment]

    async def connect_to(self, address: Address) -> None:
        await super().connect_to(address)  # type: ignore[no-untyped-call]
        try:
            await self.send_command("ROLE")
            _check_role(await self.read_response())
        except NoPermissionError:
            pass  # a user who may not ask takes the sentinel's word
        except BaseException:
            await self.disconnect(nowait=True)
            raise


class _AsyncMasterTlsConnection(_AsyncMasterConnection, AsyncTlsConnection,
                                redis.asyncio.sentinel.SentinelManagedSSLConnection):
    pass


class MasterPool(redis.sentinel.SentinelConnectionPool):
    """Blocking connections to the master."""

    @property
    def known_master(self) -> Address | None:
        """The server that was the master at the last look, or when the last connection was made."""
        return self.proxy.master_address

    def find_master(self) -> Address:
        """Ask one sentinel only, so that dead ones cost little. Connections to another server are not kept any more."""
        self.proxy.master_address = self.sentinel_manager.discover_master(self.service_name, most=1)
        return self.proxy.master_address  # type: ignore[no-any-return]

    def close_all(self) -> None:
        self.disconnect()
        for sentinel in self.sentinel_manager.sentinels:
            sentinel.close()


class AsyncMasterPool(redis.asyncio.sentinel.SentinelConnectionPool):
    """The same for asyncio, for one event loop."""

    @property
    def known_master(self) -> Address | None:
        return self.master_address

    async def find_master(self) -> Address:
        self.master_address = await self.sentinel_manager.discover_master(self.service_name, most=1)
        return self.master_address  # type: ignore[no-any-return]

    async def release(self, connection: Any) -> None:
        if (connection.host, connection.port) != self.master_address:
            await connection.disconnect(nowait=True)
        await super().release(connection)

    async def close_all(self) -> None:
        await self.disconnect()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


def _arguments(told: SentinelUrl, said: dict[str, Any]) -> dict[str, Any]:
    """Say how connections to the servers are made: what the URL says of them, and what the link wants."""
    options: dict[str, Any] = dict(parse_url(told.server_url))  # type: ignore[no-untyped-call]
    for name in ("host", "port", "connection_class"):
        options.pop(name, None)
    return {**options, **said}


def _asking(told: SentinelUrl) -> dict[str, Any]:
    """Say how connections to the sentinels are made."""
    options: dict[str, Any] = {
        "username": told.username, "password": told.password, "protocol": 2, "retry": Retry(NoBackoff(), 0),
        "socket_timeout": ASK_S, "socket_connect_timeout": ASK_S,
    }  # fmt: skip
    if told.tls:
        options["ssl"] = True
        options |= {name: value for name, value in _arguments(told, {}).items() if name.startswith("ssl_")}
    return options


def _share_tls(sentinels: list[Any], kind: type[TlsConnection | AsyncTlsConnection]) -> None:
    for each in sentinels:
        each.connection_pool.connection_class = kind


def master_pool(url: str, said: dict[str, Any]) -> MasterPool:
    told = read_sentinel_url(url)
    manager = _Sentinels(told.sentinels, sentinel_kwargs=_asking(told))  # type: ignore[no-untyped-call]
    if told.tls:
        _share_tls(manager.sentinels, TlsConnection)
    kind = _MasterTlsConnection if told.tls else _MasterConnection
    return MasterPool(told.service, manager, connection_class=kind, **_arguments(told, said))  # type: ignore[no-untyped-call]


def async_master_pool(url: str, said: dict[str, Any]) -> AsyncMasterPool:
    told = read_sentinel_url(url)
    manager = _AsyncSentinels(told.sentinels, sentinel_kwargs=_asking(told))  # type: ignore[no-untyped-call]
    if told.tls:
        _share_tls(manager.sentinels, AsyncTlsConnection)
    kind = _AsyncMasterTlsConnection if told.tls else _AsyncMasterConnection
    return AsyncMasterPool(told.service, manager, connection_class=kind, **_arguments(told, said))  # type: ignore[no-untyped-call]
