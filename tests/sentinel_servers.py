"""A master, its replica and three sentinels for tests: each on a free loopback port, ended with the test process."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import redis

from tests.certificates import Certificates
from tests.servers import START_TIMEOUT_S, Server, binary_of, die_with_parent, free_port

SERVICE = "jobs"
DOWN_AFTER_MS = 1000
SENTINELS = 3
_POLL_S = 0.02


class Sentinel:
    """One sentinel process."""

    def __init__(self, kind: str, folder: Path, master_port: int, passwords: tuple[str, str],
                 tls: Certificates | None) -> None:
        self.port = free_port()
        of_servers, own = passwords
        ports = tls.server_options(self.port) if tls else {"port": self.port}
        lines = [
            *(f"{name} {value}" for name, value in ports.items()), "bind 127.0.0.1", f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {master_port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]  # fmt: skip
        if of_servers:
            lines.append(f'sentinel auth-pass {SERVICE} "{of_servers}"')
        if own:
            lines += [f'requirepass "{own}"', f'sentinel sentinel-pass "{own}"']
        config = folder / f"sentinel-{self.port}.conf"
        config.write_text("\n".join(lines) + "\n")
        with (folder / f"sentinel-{self.port}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [binary_of(kind), str(config), "--sentinel"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only makes one system call
            )  # fmt: skip
        said = tls.said if tls else {}
        self.redis: Any = redis.Redis("127.0.0.1", self.port, password=own or None, protocol=2, decode_responses=True,
                                      **said)
        self._hurries = kind != "redis62"

    def hurry(self) -> None:
        """Have it look at the others more often than it would, where it can."""
        if self._hurries:
            self.redis.execute_command("SENTINEL", "DEBUG", "info-period", 500, "publish-period", 250)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self.redis.close()
        self._process.kill()
        self._process.wait()


class Watched:
    """Two servers, one the replica of the other, and the sentinels that watch them."""

    def __init__(self, kind: str, *options: str, password: str = "", sentinel_password: str = "",
                 tls: Certificates | None = None) -> None:
        self._stack = ExitStack()
        self._tls = tls
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rz-sentinel-")))
        self._password, self._sentinel_password = password, sentinel_password
        auth = ("--masterauth", password) if password else ()
        fast = ("--repl-diskless-sync-delay", "0", "--repl-timeout", "5", *auth, *options)
        master = self._stack.enter_context(Server.start(kind, *fast, password=password or None, tls=tls))
        replica = Server.start(kind, *fast, "--replicaof", "127.0.0.1", str(master.port), password=password or None,
                               tls=tls)
        self.servers = [master, self._stack.enter_context(replica)]
        self.sentinels = [
            Sentinel(kind, folder, master.port, (password, sentinel_password), tls) for _ in range(SENTINELS)
        ]  # fmt: skip
        for sentinel in self.sentinels:
            self._stack.callback(sentinel.close)
            self._wait(lambda sentinel=sentinel: _pings(sentinel.redis))
            sentinel.hurry()
        self.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        credentials = f":{quote(self._password, safe='')}@" if self._password else ""
        options = [f"sentinel_password={quote(self._sentinel_password, safe='')}"] if self._sentinel_password else []
        options += [self._tls.query] if self._tls else []
        scheme = "rediss+sentinel" if self._tls else "redis+sentinel"
        return f"{scheme}://{credentials}{hosts}/{SERVICE}/0{'?' if options else ''}{'&'.join(options)}"

    def settle(self) -> None:
        """Wait until every sentinel knows all there is and the replica is in step."""
        self._wait(lambda: all(self._is_settled(sentinel) for sentinel in self.sentinels))

    def _is_settled(self, sentinel: Sentinel) -> bool:
        told = sentinel.redis.sentinel_master(SERVICE)
        known = told["num-slaves"] >= 1 and told["num-other-sentinels"] == SENTINELS - 1
        if not known or told["flags"] != "master":
            return False
        master, replica = self._told(self.master), self._told(self.replica)
        return bool(master["role"] == "master" and replica.get("master_link_status") == "up")

    def _told(self, server: Server) -> dict[str, Any]:
        with self.raw(server) as raw:
            return raw.info("replication")  # type: ignore[no-any-return]

    def raw(self, server: Server) -> Any:
        return server.raw

    @property
    def master(self) -> Server:
        """The server that the first sentinel calls the master."""
        port = int(self.sentinels[0].redis.sentinel_get_master_addr_by_name(SERVICE)[1])
        (found,) = [server for server in self.servers if server.port == port]
        return found

    @property
    def replica(self) -> Server:
        master = self.master
        (found,) = [server for server in self.servers if server is not master]
        return found

    def wait_for_promotion(self, of: Server) -> None:
        """Wait until all sentinels name this server, and it is a master."""
        def is_named() -> bool:
            told = [sentinel.redis.sentinel_get_master_addr_by_name(SERVICE) for sentinel in self.sentinels]
            return all(each and int(each[1]) == of.port for each in told) and self._told(of)["role"] == "master"

        self._wait(is_named)

    def wait_for_demotion(self, of: Server) -> None:
        """Wait until this server is a replica: it took writes till then, and they are lost."""
        def is_replica() -> bool:
            try:
                return bool(self._told(of)["role"] == "slave")
            except redis.ConnectionError:  # the sentinel that demotes it has it hang up on everybody
                return False

        self._wait(is_replica)

    def failover(self) -> None:
        """Have the sentinels make the replica the master, as for a server that is to be taken down."""
        chosen = self.replica
        self._wait(self.begin_failover)
        self.wait_for_promotion(chosen)

    def stop_replication(self) -> None:
        """Let the replica miss whatever is written from now on; it can still be made the master."""
        with self.raw(self.replica) as replica, self.raw(self.master) as master:
            replica.config_set("masterauth", "wrong")
            replica.config_set("masteruser", "nobody")
            master.client_kill_filter(_type="replica")
            self._wait(lambda: replica.info("replication")["master_link_status"] == "down")

    def allow_replication(self) -> None:
        for server in self.servers:
            with self.raw(server) as raw:
                raw.config_set("masteruser", "")
                raw.config_set("masterauth", self._password)

    def strangers(self, server: Server) -> list[str]:
        """Tell who uses a server, besides its replica, its master, the sentinels and this.

        A plain connection that has been idle for a while is left out: before it is used again, its owner looks where
        the master is.
        """
        with self.raw(server) as raw:
            own = str(raw.client_id())
            others = [each for each in raw.client_list() if each["id"] != own and not set(each["flags"]) & {"S", "M"}]
        others = [each for each in others if not each["name"].startswith("sentinel-")]
        return [f"{each['cmd']} {each['flags']}" for each in others if each["flags"] != "N" or int(each["idle"]) < 3]

    def begin_failover(self) -> bool:
        """Say whether the first sentinel agreed: it may not have heard enough of the replica yet."""
        try:
            return bool(self.sentinels[0].redis.execute_command("SENTINEL", "FAILOVER", SERVICE))
        except redis.ResponseError:
            return False

    def _wait(self, condition: Any) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"the sentinels never agreed: {self._story()}"
            time.sleep(_POLL_S)

    def _story(self) -> str:
        return "\n".join(str(sentinel.redis.sentinel_master(SERVICE)) for sentinel in self.sentinels)


def _pings(connection: Any) -> bool:
    try:
        return bool(connection.ping())
    except redis.RedisError:
        return False
