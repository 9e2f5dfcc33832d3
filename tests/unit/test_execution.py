"""One attempt: whether its handler may begin."""

from __future__ import annotations

import asyncio
import time

import pytest

from rzsched import App, execution, keys
from rzsched.calls import Claimed
from rzsched.codec import encode_payload
from rzsched.execution import LOST, OpeningRules, Run

LEASE_S = 5.0


def opened(task: str, leased_from: float, called: list[str]) -> Run:
    """Open a run of a task that notes that it was called."""
    app = App("redis://127.0.0.1:1")

    @app.task
    async def on_loop() -> None:
        called.append("on_loop")

    @app.task
    def plain() -> None:
        called.append("plain")

    rules = OpeningRules(app, None, LEASE_S, "0", "0", lambda *_: None)
    flat = [b"task", task.encode(), b"payload", encode_payload((), None, 1 << 20), b"entry", b"5/1-1"]
    run = execution.open_run(rules, keys.partition("rz", "q", 0), Claimed("5/1-1", "q.0.x", "1", 1, flat), leased_from)
    assert isinstance(run, Run)
    return run


def call(run: Run) -> BaseException | None:
    if run.task.is_async:
        return asyncio.run(execution.call_async(run))[1]
    return execution.call_plain(run)[1]


@pytest.mark.parametrize("task", ["on_loop", "plain"])
def test_a_handler_does_not_begin_after_the_lease_of_its_claim(task: str) -> None:
    """As after SIGSTOP and SIGCONT between the claim and the start: another worker may run the job by now."""
    called: list[str] = []
    run = opened(task, time.monotonic() - LEASE_S, called)
    error = call(run)
    assert called == []
    assert run.stop_reason == LOST
    assert execution.ended(run, None, error, 100) is None, "it is not this worker's to end any more"


@pytest.mark.parametrize("task", ["on_loop", "plain"])
def test_a_handler_begins_within_the_lease(task: str) -> None:
    called: list[str] = []
    run = opened(task, time.monotonic() - LEASE_S + 1, called)
    assert call(run) is None
    assert called == [task]


@pytest.mark.parametrize("task", ["on_loop", "plain"])
def test_a_handler_does_not_begin_once_somebody_asked_it_to_stop(task: str) -> None:
    called: list[str] = []
    run = opened(task, time.monotonic(), called)
    run.stop_reason = execution.SHUTDOWN
    assert isinstance(call(run), asyncio.CancelledError)
    assert called == []
