"""Leases, renewed beside the work by a thread with a connection of its own.

The protocol. A claim sets `lock:<id>` to `worker#fence` for one lease, and the pending entry's idle time starts. Every
third of a lease this thread renews both for every run. So a handler that blocks the event loop, or a main thread that
is busy, keeps its leases.

A run is lost when the server says that the lock is not its own, or when no renewal has succeeded for a whole
lease by this process's monotonic clock: then another worker may have the job, and the handler is told to stop without
any coordination. While no heartbeat has succeeded for a whole lease the worker claims nothing.
"""

import logging
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from rzsched import calls, keys
from rzsched.calls import Call, Outcome
from rzsched.connect import LinkSettings
from rzsched.errors import RzschedError
from rzsched.execution import CANCEL, LOST, Run
from rzsched.links import sync_link
from rzsched.refusals import OutOfMemory

_log = logging.getLogger("rzsched.worker")
PROGRESS_GAP_S = 0.2
Renewal = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class WorkerCard:
    """What a worker tells of itself with every heartbeat."""

    worker: str
    namespace: str
    queues: tuple[str, ...]
    concurrency: int
    lease_s: float

    def call(self, running: int, started_at_ms: int) -> Call[object]:
        told = {
            "host": socket.gethostname(), "pid": os.getpid(), "queues": list(self.queues), "running": running,
            "concurrency": self.concurrency, "lease": self.lease_s, "started_at_ms": started_at_ms,
        }  # fmt: skip
        key = keys.worker_info(self.namespace, self.worker)
        return calls.command("SET", key, msgpack.packb(told), "PX", int(self.lease_s * 2000), read=bool)


class LeaseKeeper:
    """Keep the leases of a worker's runs; `stop_run(run, reason)` is called on this thread for one that must stop."""

    def __init__(self, url: str, card: WorkerCard, runs: dict[str, Run],
                 unsettled: dict[tuple[str, str], tuple[keys.Partition, Outcome]],
                 stop_run: Callable[[Run, str], None], regained: Callable[[], None]) -> None:
        self._card = card
        self._lease_ms = int(card.lease_s * 1000)
        self._stop_run = stop_run
        self._regained = regained
        timeout_s = max(card.lease_s / 3, 1.0)
        self._link = sync_link(url, LinkSettings(min(timeout_s, 3.0), timeout_s, retry_s=0))
        self.runs = runs
        self._unsettled = unsettled
        self._progressed: deque[str] = deque()
        self._poke = threading.Event()
        self._closing = False
        self._wanted = False
        self._reachable = True
        self._started_at_ms = int(time.time() * 1000)
        self._trusted_from = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name="rzsched-lease", daemon=True)
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="rzsched-lease-end", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._watcher.start()

    @property
    def is_trusted(self) -> bool:
        """Say whether this worker may claim: its last heartbeat is younger than a lease."""
        return time.monotonic() - self._trusted_from < self._card.lease_s

    def report_progress(self, job_id: str, fence: str, text: str) -> None:
        run = self.runs.get(job_id)
        if run is not None and run.fence == fence:
            run.progress = text.encode("utf-8", "replace").decode()
            self._progressed.append(job_id)
            self._poke.set()

    def renew_soon(self) -> None:
        """Renew everything before it is due: the answers tell of cancels that nobody heard."""
        self._wanted = True
        self._poke.set()

    def close(self) -> None:
        """Stop keeping, and leave the registry."""
        self._closing = True
        self._poke.set()
        self._thread.join(timeout=self._card.lease_s)
        self._closed.set()
        self._watcher.join(timeout=self._card.lease_s)
        try:
            self._link.execute([
                calls.attend(keys.workers(self._card.namespace), self._card.worker),
                calls.command("DEL", keys.worker_info(self._card.namespace, self._card.worker), read=int),
            ])  # fmt: skip
        except RzschedError as error:
            _log.debug("the worker could not leave the registry, which forgets it by itself: %s", error)
        self._link.close()

    def _keep(self) -> None:
        interval = self._card.lease_s / 3
        due = 0.0
        while not self._closing:
            begun = time.monotonic()
            if begun >= due or self._wanted:
                self._wanted = False
                late = begun - due
                if due and late > interval:
                    _log.warning("lease renewal is %.1f s late: is something holding the interpreter lock?", late)
                if self._renew(list(self.runs.values())):
                    due = begun + interval
                else:
                    due = time.monotonic() + min(interval, 0.5)
            elif self._progressed:
                self._renew(self._take_progressed())
            self._wait(due)

    def _wait(self, due: float) -> None:
        if self._poke.wait(max(0.0, due - time.monotonic())) and not self._closing:
            self._poke.clear()
            # Progress told in a burst travels as one.
            threading.Event().wait(PROGRESS_GAP_S)

    def _take_progressed(self) -> list[Run]:
        progressed = {self._progressed.popleft() for _ in range(len(self._progressed))}
        return [run for job_id in progressed if (run := self.runs.get(job_id)) is not None]

    def _watch(self) -> None:
        """Stop what has outlived its lease, on time: the renewing thread may just be waiting for an answer."""
        wait_s = 0.0
        while not self._closed.wait(wait_s):
            self._give_up_overdue()
            ended_from = time.monotonic() - self._card.lease_s
            left_s = [run.leased_from - ended_from for run in list(self.runs.values()) if run.leased_from > ended_from]
            wait_s = min(left_s, default=math.inf)
            wait_s = min(wait_s + 0.001, self._card.lease_s / 4)

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        for run in list(self.runs.values()):
            if now - run.leased_from >= self._card.lease_s and not run.stop_reason:
                _log.warning("no renewal for a whole lease: stopping job=%s", run.id)
                run.leased_from = math.inf  # said once, though the loop may be too busy to hear it
                self._stop_run(run, LOST)

    def _renew(self, runs: list[Run]) -> bool:
        """Renew in one round trip, with the heartbeat; say whether the server answered."""
        sent = time.monotonic()
        by_place: dict[keys.Partition, list[Run]] = {}
        for run in runs:
            if not run.ended and run.stop_reason != LOST:
                by_place.setdefault(run.place, []).append(run)
        # A handler that blocks the loop also holds up the outcomes of those that ended before it.
        ended: dict[keys.Partition, list[Renewal]] = {}
        for place, outcome in list(self._unsettled.values()):
            by_place.setdefault(place, [])
            ended.setdefault(place, []).append((*outcome[1:4], ""))
        steps: list[Call[object]] = [
            calls.attend(keys.workers(self._card.namespace), self._card.worker, self._card.lease_s),  # type: ignore[list-item]
            self._card.call(len(self.runs), self._started_at_ms),
        ]
        steps += [self._renewal(place, here, ended.get(place, [])) for place, here in by_place.items()]
        try:
            answers = self._execute(steps)
        except Exception as error:  # whatever it is, this thread must try again: nothing else renews
            answers = [error] * len(steps)
        failure = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if failure is not None and self._reachable:
            _log.warning("leases can't be renewed: %s", failure)
        self._reachable = failure is None
        self._take_answers(list(by_place.values()), answers[2:], sent)
        # In a cluster one node may be away: its runs end by their own leases, the others go on.
        if failure is None or not all(isinstance(answer, Exception) for answer in answers):
            was_trusted, self._trusted_from = self.is_trusted, sent
            if not was_trusted:
                self._regained()
        return failure is None

    def _execute(self, steps: list[Call[object]]) -> list[Any]:
        outcomes = self._link.outcomes(steps)
        if isinstance(outcomes[1], OutOfMemory):
            outcomes[1] = None  # a full server may do without the card, but not without the leases
        return outcomes

    def _renewal(self, place: keys.Partition, runs: list[Run], ended: list[Renewal]) -> Call[object]:
        told = [(run.id, run.fence, run.entry, run.progress) for run in runs] + ended
        return calls.renew(place, self._card.worker, self._lease_ms, told)  # type: ignore[return-value]

    def _take_answers(self, groups: list[list[Run]], answers: list[Any], sent: float) -> None:
        for runs, notes in zip(groups, answers, strict=True):
            for run in runs if not isinstance(notes, Exception) else ():
                note = notes.get(run.fence)
                if note != "LOST":
                    run.leased_from = sent
                if note is None or run.ended or self.runs.get(run.id) is not run:
                    continue
                self._stop_run(run, LOST if note == "LOST" else CANCEL)
