"""One chaos run: start everything, do the faults, let it come to rest, read the books."""

import heapq
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import ledger
from bench.chaos.books import Books, read_runs
from bench.chaos.copies import ClusterServers
from bench.chaos.hands import Hands, Heal, NotYet
from bench.chaos.plan import KINDS, LEASE_S, WITH_COPIES, Fault, plan
from bench.chaos.processes import Slot
from bench.chaos.producer import OTHER_QUEUE, QUEUE
from bench.chaos.proxy import Proxy
from bench.chaos.servers import Servers, key_count, used_memory
from bench.chaos.services import SERVICES
from bench.common import Figures
from bench.fleet import ROOT
from rzsched import Client, keys
from rzsched.audit import audit
from rzsched.errors import RzschedError

QUEUES = (QUEUE, OTHER_QUEUE)
CONCURRENCY = 10
MOST_AT_ONCE = 16
PRODUCERS = ("producer", "producer", "async_producer")
CALM_TIMEOUT_S = 90.0
UP_TIMEOUT_S = 60.0
AGAIN_S = 0.1
SCHEDULES = {"each-second": 1000, "each-third": 3000}


class Chaos:
    """The processes and the server of one run."""

    def __init__(self, kind: str, seed: int, folder: Path, stack: ExitStack) -> None:
        self._seed = seed
        self._moves = 0
        self._folder = folder
        self.servers: Servers = SERVICES[kind]()
        stack.callback(self.servers.close)
        self._proxy = None
        if self.servers.proxied_port is not None:
            self._proxy = Proxy(self.servers.proxied_port)
            stack.callback(self._proxy.close)
        self._clock = folder / "clock"
        self._clock.write_text("0")
        self.slots = {slot.name: slot for slot in self._make_slots()}
        for slot in self.slots.values():
            stack.callback(slot.close)
        self.producers = [self._producer(number, name) for number, name in enumerate(PRODUCERS)]
        for slot in self.producers:
            stack.callback(slot.close)
        self.client = stack.enter_context(Client(self.servers.url))

    # ---- who takes part

    def _make_slots(self) -> Iterator[Slot]:
        yield self._worker("worker", "--no-scheduler")
        yield self._worker("pair", "-w", "2", role="supervisor")
        shifted = {"PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "shifted"), str(ROOT))),
                   "RZSCHED_TEST_CLOCK": str(self._clock)}  # fmt: skip
        yield self._worker("worker-shifted", environment=shifted)
        if self._proxy is not None:
            yield self._worker("worker-proxied", environment={
                "RZSCHED_URL": f"redis://127.0.0.1:{self._proxy.port}/0"})  # fmt: skip
        for number in range(2):
            yield Slot(f"scheduler-{number}", "scheduler", ["rzsched", "scheduler"], self._environment({}),
                       self._folder)

    def _worker(self, name: str, *options: str, role: str = "worker",
                environment: dict[str, str] | None = None) -> Slot:
        queues = [word for queue in QUEUES for word in ("-q", queue)]
        words = ["rzsched", "worker", *queues, "-c", str(CONCURRENCY), "--lease", str(LEASE_S),
                 "--shutdown-timeout", "10", *options, "bench.chaos.app:app"]  # fmt: skip
        return Slot(name, role, words, self._environment(environment or {}), self._folder)

    def _producer(self, number: int, module: str) -> Slot:
        words = [f"bench.chaos.{module}", "--url", self.servers.url, "--seed", str(self._seed * 1000 + number),
                 "--durability", "replicated" if self.servers.copies else "memory",
                 "--replicas", str(max(self.servers.copies, 1))]  # fmt: skip
        return Slot(f"producer-{number}", "producer", words, self._environment({}), self._folder)

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {"RZSCHED_URL": self.servers.url, "RZSCHED_NAMESPACE": "rz", "PYTHONPATH": str(ROOT),
                ledger.FOLDER_VARIABLE: str(self._folder), **more}  # fmt: skip

    def plan(self, seconds: float) -> list[Fault]:
        targets: dict[str, list[str]] = {"server": ["server"]}
        for slot in self.slots.values():
            targets.setdefault(slot.role, []).append(slot.name)
        targets["shifted"] = ["worker-shifted"]
        if self.servers.partitions > 1:
            targets["cluster"] = ["server"]
        if self._proxy is not None:
            targets["proxied"] = ["worker-proxied"]
        return plan(self._seed, seconds, targets, WITH_COPIES if self.servers.copies else KINDS)

    def _move_slot(self) -> None:
        """Move a partition of a queue to another node of the cluster, in use as it is."""
        assert isinstance(self.servers, ClusterServers)
        self._moves += 1
        self.servers.move_slot(keys.partition("rz", QUEUE, self._moves % self.servers.partitions).base)

    def hands(self) -> Hands:
        return Hands(self.servers, self.slots, self._proxy, self._clock, self._move_slot)

    # ---- how it goes

    def begin(self) -> None:
        if self.servers.partitions > 1:
            for queue in QUEUES:
                self.client.configure_queue(queue, partitions=self.servers.partitions)
        self.client.configure_queue(OTHER_QUEUE, concurrency=MOST_AT_ONCE)  # a place that leaked would be missed
        for slot in self.slots.values():
            slot.start()
        deadline = time.monotonic() + UP_TIMEOUT_S
        while len(self.client.workers()) < len([s for s in self.slots.values() if s.role != "scheduler"]) + 1:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the workers do not come: {self._logs()}")
            time.sleep(0.1)
        said: dict[str, Any] = {"queue": QUEUE, "misfire": "all", "misfire_limit": 10_000}
        self.client.schedule_cron("tick", every=1, id="each-second", overlap="allow", **said)
        self.client.schedule_cron("tick", cron="*/3 * * * * *", id="each-third", overlap="wait",
                                  kwargs={"seconds": 0.5}, **said)  # fmt: skip
        for producer in self.producers:
            producer.start()

    def end(self, hands: Hands) -> float:
        """Stop the producers and the schedules, and wait until nothing is left to do; give the seconds that took."""
        end_in_order(self.producers, hands)
        for schedule in SCHEDULES:
            self._patiently(lambda schedule=schedule: self.client.pause_cron(schedule))
        began = time.monotonic()
        while self._patiently(self._waiting):
            if time.monotonic() - began > CALM_TIMEOUT_S:
                hands.complaints.append(f"{self._waiting()} jobs have come to no end in {CALM_TIMEOUT_S:g} s")
                break
            time.sleep(0.2)
        return time.monotonic() - began

    def check_occurrences(self, books: Books, hands: Hands) -> None:
        """Hold what ran of each schedule against what the server says it fired."""
        ran = books.figures()["occurrences"]
        for schedule in SCHEDULES:
            fired = self.client.get_cron(schedule).fired
            if fired != ran[schedule]:
                hands.complaints.append(f"schedule {schedule} fired {fired} times, and ran {ran[schedule]}")

    def _patiently(self, call: Any) -> Any:
        deadline = time.monotonic() + 20
        while True:
            try:
                return call()
            except RzschedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _waiting(self) -> int:
        stats = [self.client.queue_stats(queue) for queue in QUEUES]
        return sum(each.scheduled + each.ready + each.running + each.parked for each in stats)

    def stop(self, hands: Hands) -> None:
        end_in_order(self.slots.values(), hands)

    def _logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in self._folder.glob("*.log"))


def end_in_order(slots: Iterable[Slot], hands: Hands) -> None:
    """Have processes end together; note those that had ended before, or ended with an error."""
    for slot in slots:
        if slot.is_up:
            slot.terminate()
        else:
            hands.complaints.append(f"{slot.name} had ended by itself")
    for slot in slots:
        if not slot.is_farewell(code := slot.wait()):
            hands.complaints.append(f"{slot.name} ended with {code}")


def do_faults(faults: list[Fault], hands: Hands, seconds: float) -> None:
    """Do each fault at its time, and heal it at its time."""
    begin = time.monotonic()
    agenda: list[tuple[float, int, Fault, Heal | None]] = [(f.at_s, n, f, None) for n, f in enumerate(faults)]
    agenda.append((seconds, len(agenda), Fault(seconds, "end", "", 0), lambda: None))
    heapq.heapify(agenda)
    while agenda:
        at_s, number, fault, heal = heapq.heappop(agenda)
        time.sleep(max(0.0, begin + at_s - time.monotonic()))
        if heal is not None:
            try:
                heal()
            except NotYet:
                heapq.heappush(agenda, (at_s + AGAIN_S, number, fault, heal))
            continue
        print(f"[{time.monotonic() - begin:6.1f}s] {fault.kind} {fault.target} {fault.for_s:g} s", file=sys.stderr)
        heapq.heappush(agenda, (fault.at_s + fault.for_s, number, fault, hands.do(fault)))


def play(kind: str, seed: int, seconds: float, folder: Path) -> Figures:
    """Play a run; give its figures. `complaints` and `audit` are lists that must be empty."""
    with ExitStack() as stack:
        chaos = Chaos(kind, seed, folder, stack)
        faults = chaos.plan(seconds)
        hands = chaos.hands()
        memory_before = used_memory(chaos.servers)
        chaos.begin()
        do_faults(faults, hands, seconds)
        settled_s = chaos.end(hands)
        stats = [chaos.client.queue_stats(queue) for queue in QUEUES]
        findings = chaos.client.run(audit(chaos.client.space)).findings
        memory_after = used_memory(chaos.servers)
        keys_after = key_count(chaos.servers)
        chaos.stop(hands)
        books = read_books(folder, hands, dead=sum(each.dead for each in stats))
        chaos.check_occurrences(books, hands)
    return {
        "faults": len(hands.happened), "settled_s": settled_s, **books.figures(),
        "stale_refused": sum(each.stale for each in stats), "late_taken": sum(each.late for each in stats),
        "recovered": sum(each.recovered for each in stats),
        "memory_before": memory_before, "memory_after": memory_after, "keys_after": keys_after,
        "audit": [str(finding) for finding in findings], "complaints": hands.complaints,
    }  # fmt: skip


def read_books(folder: Path, hands: Hands, dead: int) -> Books:
    accepted = [json.loads(line)["job"] for line in ledger.read(folder, ledger.ACCEPTED)]
    runs = read_runs(json.loads(line) for line in ledger.read(folder, ledger.RUNS))
    return Books(frozenset(accepted), frozenset(ledger.read(folder, ledger.CANCELLED)), runs, hands.happened, LEASE_S,
                 sum(1 for _ in ledger.read(folder, ledger.FAILURES)), dead, SCHEDULES)
