"""SIGKILL at the boundaries of scripts: just before the server gets the call, and just before its answer arrives."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from rzsched import keys
from rzsched.scripts import names, script
from tests.fleet import Fleet, until
from tests.producer import Front, Hand, port_of

LEASE_S = 1.0
SCRIPTS = ("claim", "finish", "renew", "release", "promote", "recover", "fire")


class Boundaries:
    """Kill whoever calls a script for a queue, once for each; the call runs all the same, or not."""

    def __init__(self, front: Front) -> None:
        self._armed: dict[tuple[bytes, bytes], tuple[int, bool]] = {}
        front.refuse = self._meet

    def _meet(self, command: list[bytes]) -> bytes | None:
        if command[0] != b"EVALSHA" or (hit := self._armed.pop((command[1], command[3]), None)) is None:
            return None
        pid, runs = hit
        os.kill(pid, signal.SIGKILL)
        return None if runs else b""

    def arm(self, name: str, queue: str, pid: int, runs: bool) -> None:
        base = keys.partition("rz", queue, 0).base
        self._armed[script(name).sha.encode(), base.encode()] = (pid, runs)

    @property
    def left(self) -> list[tuple[bytes, bytes]]:
        return list(self._armed)


class Case:
    """One script at one boundary, on a queue of its own."""

    def __init__(self, fleet: Fleet, boundaries: Boundaries, name: str, runs: bool) -> None:
        self.fleet = fleet
        self.name = name
        self.queue = f"{name}-{'ran' if runs else 'not'}"
        self.jobs: list[str] = []
        self._boundaries = boundaries
        self._runs = runs

    def schedule(self, task: str, *args: object, delay: float | None = None) -> None:
        self.jobs.append(self.fleet.client.schedule_job(task, args=args, queue=self.queue, delay=delay))

    def _worker(self) -> int:
        return self.fleet.forker.worker(queues=[self.queue], lease_s=LEASE_S, scheduler=False, shutdown_timeout_s=0.1)

    def scheduler(self) -> int:
        return self.fleet.forker.scheduler(queues=[self.queue], lease_s=LEASE_S, idle_s=0.1)

    def _arm(self, pid: int) -> None:
        self._boundaries.arm(self.name, self.queue, pid, self._runs)

    def begin(self) -> Iterator[None]:
        """Bring a process to the call; the first step prepares, the second arms."""
        steps: dict[str, Callable[[], Iterator[None]]] = {
            "claim": self._claim, "finish": self._long_run, "renew": self._long_run, "release": self._release,
            "promote": self._promote, "recover": self._recover, "fire": self._fire,
        }  # fmt: skip
        return steps[self.name]()

    def _claim(self) -> Iterator[None]:
        pid = self._worker()
        yield
        until(lambda: any(each.pid == pid for each in self.fleet.client.workers()))
        self._arm(pid)
        self.schedule("record")

    def _long_run(self) -> Iterator[None]:
        self.schedule("sleeps", 0.8)
        pid = self._worker()
        yield
        until(lambda: self.fleet.ledger(job=self.jobs[0]))
        self._arm(pid)

    def _release(self) -> Iterator[None]:
        self.schedule("sleeps", 0.8)
        pid = self._worker()
        yield
        until(lambda: self.fleet.ledger(job=self.jobs[0]))
        self._arm(pid)
        os.kill(pid, signal.SIGTERM)

    def _promote(self) -> Iterator[None]:
        self.schedule("record", delay=0.6)
        pid = self.scheduler()
        yield
        self._arm(pid)

    def _recover(self) -> Iterator[None]:
        self.schedule("record")
        hand = Hand(self.fleet.url, f"dead-{self.queue}")
        (run,) = hand.claim(self.queue)
        hand.close()
        place = keys.partition("rz", self.queue, 0)
        self.fleet.redis.hset(place.fixed[3], "lease_ms", 50)
        self._arm(self.scheduler())
        yield
        self.fleet.redis.delete(place.lock(run.id))

    def _fire(self) -> Iterator[None]:
        self.fleet.client.schedule_cron("record", every=1, misfire="all", overlap="allow", id=self.queue,
                                        queue=self.queue)
        pid = self.scheduler()
        yield
        self._arm(pid)


def test_whoever_is_killed_at_a_script_loses_and_doubles_nothing(redis_url: str) -> None:
    with Front(port_of(redis_url)) as front, Fleet(front.url) as fleet:
        for name in names():
            fleet.redis.script_load(script(name).text)  # so that no first call is answered by NOSCRIPT
        boundaries = Boundaries(front)
        cases = [Case(fleet, boundaries, name, runs) for name in SCRIPTS for runs in (False, True)]
        begun = [case.begin() for case in cases]
        for each in begun:
            next(each)
        for each in begun:
            with suppress(StopIteration):
                next(each)
        claims = [case for case in cases if case.name == "claim"]
        deadline = time.monotonic() + 10
        while boundaries.left and time.monotonic() < deadline:
            for case in claims:
                case.schedule("record")  # until one is claimed after a blocking read
            time.sleep(0.1)
        assert not boundaries.left
        fleet.check()

        queues = [case.queue for case in cases]
        fleet.forker.worker(queues=queues, lease_s=LEASE_S, scheduler=False)
        fleet.forker.scheduler(queues=queues, lease_s=LEASE_S, idle_s=0.1)
        for case in cases:
            for job in case.jobs:
                fleet.wait_for_state(job, "SUCCEEDED")
        for case in cases:
            if case.name == "fire":
                until(lambda: fleet.client.get_cron(case.queue).fired >= 3)  # noqa: B023 - it is called now
                fleet.client.pause_cron(case.queue)
        until(lambda: sum(s.ready + s.running + s.scheduled for s in fleet.client.queues()) == 0)

        runs = Counter(each["job"] for each in fleet.ledger())
        begins_again = {job for case in cases if case.name in {"finish", "renew", "release"} for job in case.jobs}
        assert {job for job, count in runs.items() if count > 1} <= begins_again
        for case in cases:
            if case.name == "fire":
                instants = sorted(int(job.rpartition("-")[2]) for job in runs if f".{case.queue}-" in job)
                assert instants == list(range(instants[0], instants[-1] + 1, 1000))
                assert len(instants) == fleet.client.get_cron(case.queue).fired
            stats = fleet.client.queue_stats(case.queue)
            assert (stats.dead, stats.failed) == (0, 0), case.queue
        assert sum(fleet.pending(queue) for queue in queues) == 0
        fleet.check()
