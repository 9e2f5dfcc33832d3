"""The hands that do what the plan says: each fault is done, and gives what heals it."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import redis

from bench.chaos.books import Happening
from bench.chaos.nodes import Node
from bench.chaos.plan import Fault
from bench.chaos.processes import STOP_TIMEOUT_S, Slot, has_ended
from bench.chaos.proxy import Proxy
from bench.chaos.servers import LITTLE_MEMORY, Servers, destroy_groups, on_each

Heal = Callable[[], object]
CHILD_END_S = 30.0
HALF_OPEN_S = 1.0
"""Whoever waits for an answer that was swallowed notices that much later."""
TOLD_S = 4.0
"""A primary that was frozen may be replaced when it is awake again: who saw it down goes on, which takes some 3 s. What
it is told until everybody has left it, a second later, is lost."""
CLAIMED_S = 0.5
"""A claim that a server answers when it goes on was asked for before: little of its lease may be left."""
STEPS_S = (3600.0, -3600.0, 0.0, 300.0, -120.0)


class NotYet(Exception):
    """Say that a fault can't be healed yet: the process it hit is still ending. Others are healed meanwhile."""


def nothing() -> None:
    """Heal what needs no healing."""


def _kill_clients(kind: str, node: Any) -> None:
    node.client_kill_filter(_type=kind)


def _give_memory(nodes: list[Node]) -> None:
    """Let servers have memory again, also those that are no primaries any more: they may be once more."""
    for node in nodes:
        try:
            node.set_at_once("maxmemory", "0")
        except redis.TimeoutError:
            raise NotYet from None  # it stands still
        except redis.RedisError:
            pass  # it died, and will not remember


class Hands:
    """Do faults to the slots, the server and the ways between; `happened` is what was done."""

    def __init__(self, servers: Servers, slots: Mapping[str, Slot], proxy: Proxy | None, clock: Path,
                 move_slot: Callable[[], object]) -> None:
        self._move_slot = move_slot
        self._servers = servers
        self._slots = slots
        self._proxy = proxy
        self._clock = clock
        self._steps = 0
        self.happened: list[Happening] = []
        self._ending: set[str] = set()
        self.complaints: list[str] = []
        """What no process may do: end by itself, or with an error."""

    def do(self, fault: Fault) -> Heal:
        """Begin a fault; give what ends it and writes down that it happened."""
        slot = self._slots.get(fault.target)
        if fault.target in self._ending:
            return nothing  # it takes longer than planned, as where the server is away
        if slot is not None and not slot.is_up:
            self.complaints.append(f"{slot.name} had ended by itself")
            slot.start()
        pids = None if slot is None else frozenset([slot.pid, *(slot.children if slot.role == "supervisor" else [])])
        began = time.monotonic()
        if fault.kind in {"kill_child", "stop_child"}:
            pids, heal = self._at_child(fault.kind, self._slots[fault.target])
        elif slot is not None and fault.kind not in {"swallow_bytes", "step_clock"}:
            heal = self._at_process(fault.kind, slot)
        else:
            heal = self._at_server(fault.kind)
        done = time.monotonic()  # later than it began: this process too waits for a core now and then

        def end() -> None:
            heal()
            kills = fault.kind.startswith("kill_") and fault.kind != "kill_server"
            ended = done if kills and fault.kind != "kill_supervisor" else time.monotonic()
            if fault.kind == "swallow_bytes":
                ended += HALF_OPEN_S
            elif fault.kind == "stop_server":
                ended += TOLD_S if self._servers.copies else CLAIMED_S
            self.happened.append(Happening(fault.kind, began, ended, pids))

        return end

    def _at_process(self, kind: str, slot: Slot) -> Heal:
        if kind in {"kill_worker", "kill_scheduler"}:
            slot.kill()
            return slot.start
        if kind == "kill_supervisor":
            return self._kill_supervisor(slot)
        if kind in {"restart_worker", "restart_supervisor"}:
            slot.terminate()
            told_at = time.monotonic()
            self._ending.add(slot.name)
            return lambda: self._restart(slot, told_at)
        os.kill(slot.pid, signal.SIGSTOP)
        return lambda: os.kill(slot.pid, signal.SIGCONT)

    def _restart(self, slot: Slot, told_at: float) -> None:
        if slot.is_up and time.monotonic() < told_at + STOP_TIMEOUT_S:
            raise NotYet
        code = slot.wait(0.0)
        self._ending.remove(slot.name)
        if not slot.is_farewell(code):
            self.complaints.append(f"{slot.name} ended with {code} when it was told to")
        slot.start()

    def _kill_supervisor(self, slot: Slot) -> Heal:
        """Kill the parent alone: its children must notice, and end by themselves."""
        orphans = slot.children
        slot.kill()
        killed_at = time.monotonic()

        def heal() -> None:
            if not slot.is_up:
                slot.start()
            left = [pid for pid in orphans if not has_ended(pid)]
            if left and time.monotonic() < killed_at + CHILD_END_S:
                raise NotYet
            for pid in left:
                self.complaints.append(f"a child of {slot.name} goes on without its parent")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        return heal

    def _at_child(self, kind: str, slot: Slot) -> tuple[frozenset[int], Heal]:
        children = slot.children
        if not children:
            return frozenset(), nothing
        pid = children[0]
        os.kill(pid, signal.SIGKILL if kind == "kill_child" else signal.SIGSTOP)

        def go_on() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        return frozenset([pid]), nothing if kind == "kill_child" else go_on

    def _at_server(self, kind: str) -> Heal:
        if kind == "kill_server":
            self._servers.kill_primary()
            return self._servers.heal
        if kind == "stop_server":
            return self._servers.pause_primary()
        if kind == "swallow_bytes":
            assert self._proxy is not None
            self._proxy.swallow()
            return self._proxy.pass_on
        if kind == "refuse_writes":
            nodes = self._servers.primaries
            on_each(self._servers, lambda node: node.config_set("maxmemory", LITTLE_MEMORY))
            return lambda: _give_memory(nodes)
        if kind == "move_slot":
            self._move_slot()
        elif kind == "step_clock":
            self._steps += 1
            self._set_clock(STEPS_S[self._steps % len(STEPS_S)])
        elif kind == "flush_scripts":
            on_each(self._servers, lambda node: node.script_flush())
        elif kind == "kill_clients":
            for type_ in ("normal", "pubsub"):
                on_each(self._servers, partial(_kill_clients, type_))
        elif kind == "destroy_groups":
            on_each(self._servers, destroy_groups)
        else:
            raise ValueError(f"nobody knows how to do {kind}")
        return nothing

    def _set_clock(self, off_s: float) -> None:
        new = self._clock.with_suffix(".new")
        new.write_text(str(off_s))
        new.replace(self._clock)
