"""What a type checker tells the users of both clients."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SNIPPET = '''
import asyncio
from datetime import UTC, datetime, timedelta
from rzsched.aio import AsyncClient
from rzsched.client import Client
from rzsched.job import JobSpec

client = Client()
aclient = AsyncClient()
reveal_type(client.schedule_job("t", args=(1,), run_at=datetime.now(UTC), priority=1))
reveal_type(client.schedule_many([JobSpec("t", delay=timedelta(1))]))
reveal_type(client.cancel_job("q.0.x"))
reveal_type(client.get_job_status("q.0.x"))
reveal_type(client.list_dead("q", 5))
reveal_type(client.replay_dead("q"))
reveal_type(client.queues())

async def main() -> None:
    reveal_type(await aclient.schedule_job("t", kwargs={"a": 1}))
    reveal_type(await aclient.schedule_many(JobSpec("t") for _ in range(5)))
    reveal_type(await aclient.get_job_status("q.0.x"))
    reveal_type(await asyncio.gather(*(aclient.schedule_job("t") for _ in range(5))))
    asyncio.create_task(aclient.schedule_job("t"))
    aclient.schedule_job("t")  # BAD unused-coroutine
    await aclient.schedule_job("t", prioritty=1)  # BAD call-arg
    await aclient.schedule_job()  # BAD call-arg

client.schedule_job("t", prioritty=1)  # BAD call-arg
client.schedule_job("t", priority="high")  # BAD arg-type
client.schedule_job("t", delay="5")  # BAD arg-type
client.schedule_job(5)  # BAD arg-type
client.schedule_many(["t"])  # BAD list-item
client.cancel_job()  # BAD call-arg
client.cancel_job(5)  # BAD arg-type
'''
REVEALED = [
    "rzsched.job.JobId", "list[rzsched.job.JobId]", "bool", "rzsched.status.JobStatus", "list[rzsched.answers.DeadJob]",
    "rzsched.answers.Refusals", "list[rzsched.answers.QueueStats]", "rzsched.job.JobId", "list[rzsched.job.JobId]",
    "rzsched.status.JobStatus", "list[rzsched.job.JobId]",
]  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("typing")
    (folder / "snippet.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(folder / "cache"),
               "--follow-imports=silent", "--ignore-missing-imports", "--show-error-codes", "snippet.py"]  # fmt: skip
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                             env={**os.environ, "MYPYPATH": str(ROOT)})  # fmt: skip
    return [line for line in process.stdout.splitlines() if line.startswith("snippet.py:")]


def test_every_answer_has_its_type(said: list[str]) -> None:
    revealed = [found[1].replace("builtins.", "") for line in said if (found := re.search(r'type is "(.*)"', line))]
    assert revealed == REVEALED


def test_wrong_arguments_are_found_and_nothing_else(said: list[str]) -> None:
    found = {(int(line.split(":")[1]), line[line.rindex("[") + 1 : -1]) for line in said if ": error: " in line}
    marked = [(number, line.partition("# BAD ")[2]) for number, line in enumerate(SNIPPET.splitlines(), 1)]
    expected = {(number, code) for number, code in marked if code}
    assert found == expected
