"""Servers that want a user and TLS, alone, behind Sentinel and in a cluster, for the least of users."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from click.testing import CliRunner
from redis.backoff import NoBackoff
from redis.retry import Retry

from rzsched import AsyncClient, Client, JobSpec, keys
from rzsched.cli import cli
from rzsched.encryption import TlsConnection, context_of, tls_options
from rzsched.layout import LAYOUT_S
from rzsched.names import split_job_id
from rzsched.refusals import CredentialsRefused
from tests.certificates import Certificates
from tests.cluster_servers import Cluster
from tests.conftest import ROOT
from tests.fleet import Fleet, until
from tests.sentinel_servers import Watched
from tests.servers import Server

ADMIN, PASSWORD = "adm1n", "p@ss/#w0rd"
BASE = keys.partition("rz", "default", 0).base
TLS = ["plain", "tls"]
RIGHTS = (ROOT / "README.md").read_text().partition("ACL SETUSER rzsched ")[2].partition("```")[0].split()


class Guarded:
    """Servers that let only a named user in; `kind` is their program, `certificates` what they speak TLS with."""

    def __init__(self, kind: str, folder: Path, certificates: Certificates | None) -> None:
        self.kind = kind
        self.folder = folder
        self.certificates = certificates

    def start(self) -> Server:
        return Server.start(self.kind, dir=self.folder, password=ADMIN, tls=self.certificates)

    def url(self, url: str, user: str = "rzsched") -> str:
        return url.replace(f":{ADMIN}@", f"{user}:{quote(PASSWORD, safe='')}@")


def let_in(connection: Any, user: str = "rzsched", without: str = "") -> None:
    rights = [f">{PASSWORD}" if right == ">PASSWORD" else right for right in RIGHTS if right != without]
    connection.execute_command("ACL", "SETUSER", user, *rights)


def refusals(connection: Any) -> set[str]:
    """Name what the user was not permitted; redis-py tells its own name where it may."""
    told = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in connection.execute_command("ACL", "LOG")]
    return {each[b"object"].decode() for each in told} - {"client", "client|setinfo", "config", "config|get"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=TLS)
def guarded(request: pytest.FixtureRequest, server_kind: str, tmp_path: Path, certificates: Certificates) -> Guarded:
    folder = tmp_path / "servers"
    folder.mkdir()
    if request.param == "plain":
        return Guarded(server_kind, folder, None)
    # The servers that come as wheels speak no TLS.
    if shutil.which("redis-server") is None:
        pytest.skip("TLS needs redis-server on PATH: apt-get install redis-server")
    return Guarded("redis", folder, certificates)


def use(fleet: Fleet) -> None:
    """Have each kind of client run jobs, waited for, due later, and fired by a schedule."""
    assert fleet.client.wait(fleet.client.schedule_job("echo", args=(1,), delay=0.05), 10) == 1

    async def run() -> Any:
        async with AsyncClient(fleet.url) as client:
            jobs = [await client.schedule_job("echo", args=(number,), delay=0.05) for number in range(6)]
            return await asyncio.gather(*(client.wait(job, 10) for job in jobs))

    assert asyncio.run(run()) == list(range(6))


def doctor(url: str) -> dict[str, str]:
    result = CliRunner().invoke(cli, ["--url", url, "doctor", "--json", "--audit", "--fix"])
    assert result.exit_code == 0, result.output
    return {check["name"]: check["verdict"] for check in json.loads(result.stdout)["checks"]}


@pytest.fixture
def at_work() -> Iterator[Callable[[str], Fleet]]:
    """Start a worker and a scheduler, and have them used."""
    with ExitStack() as fleets:

        def start(url: str) -> Fleet:
            fleet = fleets.enter_context(Fleet(url))
            fleet.client.configure_queue("default", partitions=4)
            worker = fleet.worker("--no-scheduler", wait=False)
            fleet.scheduler()
            fleet.wait_for_line(worker, "worker started")
            use(fleet)
            assert {doctor(url)[name] for name in ("scripts", "schedulers", "workers", "audit")} == {"ok"}
            return fleet

        yield start


def test_one_server(guarded: Guarded, at_work: Callable[[str], Fleet]) -> None:
    with guarded.start() as server, server.raw as raw:
        let_in(raw)
        fleet = at_work(guarded.url(server.url))
        fleet.client.schedule_cron("echo", every=1, id="ticks", args=(1,))
        held = fleet.client.schedule_job("gated", args=("held",), concurrency_key="k")
        fleet.stand.next("held")
        assert fleet.client.cancel_job(held)
        fleet.stand.next("held cancelled", 5)
        until(lambda: fleet.client.get_cron("ticks").fired)
        fleet.client.remove_cron("ticks")
        assert refusals(raw) == set()


def test_a_master_that_sentinels_replace(guarded: Guarded, at_work: Callable[[str], Fleet]) -> None:
    with Watched(guarded.kind, password=ADMIN, sentinel_password="s3ntinel", tls=guarded.certificates) as watched:
        for server in watched.servers:
            with server.raw as raw:
                let_in(raw)
        fleet = at_work(guarded.url(watched.url))
        old = watched.master
        watched.failover()
        watched.wait_for_demotion(old)
        use(fleet)
        for server in watched.servers:
            with server.raw as raw:
                assert refusals(raw) == set()


def test_a_slot_that_moves_and_a_master_that_is_replaced(guarded: Guarded, at_work: Callable[[str], Fleet]) -> None:
    with Cluster(guarded.kind, guarded.folder, masters=2, replicas=1, password=ADMIN,
                 tls=guarded.certificates) as cluster:  # fmt: skip
        for node in cluster.nodes:
            let_in(node.redis)
        fleet = at_work(guarded.url(cluster.url))
        source = cluster.owner(BASE)
        target = next(node for node in cluster.masters if node is not source)
        cluster.move_slot(BASE, target)
        use(fleet)
        cluster.replica_of(target).told("CLUSTER", "FAILOVER")
        cluster.wait_for_failover(target)
        use(fleet)
        assert set().union(*(refusals(node.redis) for node in cluster.nodes)) == set()


def error_of(url: str) -> list[str]:
    """Give what either client says, which is to come soon."""
    said = []
    for kind in (Client, AsyncClient):
        began = time.monotonic()
        with pytest.raises(CredentialsRefused) as caught:
            _try(kind(url))
        assert time.monotonic() - began < 5
        assert PASSWORD not in str(caught.value)
        said.append(str(caught.value))
    return said


def _try(client: Client | AsyncClient) -> None:
    async def run(client: AsyncClient) -> None:
        async with client:
            await client.wait(await client.schedule_job("t"), 1)

    if isinstance(client, AsyncClient):
        return asyncio.run(run(client))
    with client:
        client.wait(client.schedule_job("t"), 1)


SERVERS = pytest.mark.parametrize("what", ["one", "sentinel", "cluster"])
FAULTS = [
    ("ssl_ca_certs=[^&]*&", "", "ssl_ca_certs"), ("&ssl_certfile=.*", "", "ssl_certfile"),
    (r"ca\.pem", "other.pem", "file is missing"),
]  # fmt: skip


@SERVERS
def test_who_is_refused_hears_it_soon_with_what_to_do(what: str, server_kind: str, tmp_path: Path) -> None:
    guarded = Guarded(server_kind, tmp_path, None)
    with ExitStack() as stack:
        url, raws = _start(what, guarded, stack)
        for connection in raws:
            let_in(connection, "no-keys", "~rz:*")
            let_in(connection, "no-ears", "+subscribe")
            let_in(connection, "no-hands", "+hset")
        for user in ("no-keys", "no-ears", "no-hands"):
            assert all("ACL SETUSER" in said for said in error_of(guarded.url(url, user)))
        assert all("refused the user name or password" in said for said in error_of(guarded.url(url, "nobody")))


@SERVERS
@pytest.mark.parametrize("guarded", ["tls"], indirect=True)
# asyncio of Python 3.11 may leave a transport behind whose handshake failed, until it is collected.
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_what_tls_does_not_like_is_said_soon_with_what_to_do(what: str, guarded: Guarded) -> None:
    with ExitStack() as stack:
        url, raws = _start(what, guarded, stack)
        for connection in raws:
            let_in(connection)
        for part, other, told in FAULTS:
            assert all(told in said for said in error_of(re.sub(part, other, guarded.url(url))))
    gc.collect()


@pytest.mark.parametrize("guarded", ["tls"], indirect=True)
def test_why_a_server_hung_up_is_told_at_the_first_try(guarded: Guarded) -> None:
    """A server of TLS 1.3 refuses a client's certificate when that client is writing already."""
    assert guarded.certificates is not None
    with guarded.start() as server:
        for _ in range(20):
            connection = TlsConnection(host="127.0.0.1", port=server.port, retry=Retry(NoBackoff(), 0),
                                       ssl_ca_certs=str(guarded.certificates.ca))  # fmt: skip
            with pytest.raises(redis.ConnectionError, match="CERTIFICATE_REQUIRED"):
                connection.connect()  # type: ignore[no-untyped-call]


def test_connections_that_are_told_the_same_share_what_they_need_for_tls(certificates: Certificates) -> None:
    told = {"ssl_ca_certs": str(certificates.ca)}
    unsaid = {"ssl_certfile": None, "ssl_validate_ocsp": False, "ssl_validate_ocsp_stapled": False}  # as redis-py does
    assert context_of(tls_options({**told, **unsaid, "host": "h"})) is context_of(tls_options(told))


def _start(what: str, guarded: Guarded, stack: ExitStack) -> tuple[str, list[Any]]:
    tls = guarded.certificates
    if what == "cluster":
        cluster = stack.enter_context(Cluster(guarded.kind, guarded.folder, masters=2, password=ADMIN, tls=tls))
        return cluster.url, [node.redis for node in cluster.nodes]
    if what == "sentinel":
        watched = stack.enter_context(Watched(guarded.kind, password=ADMIN, tls=tls))
        return watched.url, [stack.enter_context(server.raw) for server in watched.servers]
    server = stack.enter_context(guarded.start())
    return server.url, [stack.enter_context(server.raw)]


def test_who_may_not_listen_is_told_of_it_and_learns_of_growth_a_little_later(server_kind: str, tmp_path: Path) -> None:
    guarded = Guarded(server_kind, tmp_path, None)
    with guarded.start() as server, server.raw as raw:
        let_in(raw, without="&rz:*")
        with Fleet(guarded.url(server.url)) as fleet:
            worker = fleet.worker()
            fleet.wait_for_line(worker, "ACL SETUSER", 2)
            job = fleet.client.schedule_job("echo", args=(1,))
            fleet.wait_for_state(job, "SUCCEEDED")
            with Client(server.url) as who_may:
                who_may.configure_queue("default", partitions=4)
                jobs = who_may.schedule_many([JobSpec("echo", args=(1,))] * 20)
                assert {split_job_id(job)[1] for job in jobs} == {0, 1, 2, 3}
            for job in jobs:
                fleet.wait_for_state(job, "SUCCEEDED", 2 * LAYOUT_S)


def test_the_least_rights_name_each_command_of_the_scripts() -> None:
    named = {right.removeprefix("+").partition("|")[0] for right in RIGHTS}
    called = {name for path in (ROOT / "lua").rglob("*.lua")
              for name in re.findall(r"(?:redis\.p?call\(|arguments = \{)'([A-Z]+)'", path.read_text())}  # fmt: skip
    assert {name.lower() for name in called} <= named
    assert len(called) > 40
