"""A namespace as one client knows it, and where its queues live."""

import random
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from rzsched import calls, keys, layout
from rzsched.config import ClientSettings
from rzsched.durability import Wait
from rzsched.exchange import Step
from rzsched.job import Prepared
from rzsched.keys import Partition
from rzsched.layout import Layout
from rzsched.names import split_job_id

T = TypeVar("T")
Plan = Generator[list[Step], list[Any], T]
"""An operation, sans-I/O: it yields steps that may travel together, receives their answers in the same order, and
returns its result. No steps at all let others have their turn."""


def together(plans: Iterable[Plan[Any]]) -> Plan[list[Any]]:
    """Run plans side by side, so that the steps each yields next travel together; return what each returned."""
    every = list(plans)
    results: list[Any] = [None] * len(every)
    answers: dict[int, Any] = dict.fromkeys(range(len(every)))
    while answers:
        steps: dict[int, list[Step]] = {}
        for index, told in answers.items():
            try:
                steps[index] = every[index].send(told)
            except StopIteration as end:
                results[index] = end.value
        if not steps:
            break
        told = iter((yield [step for each in steps.values() for step in each]))
        answers = {index: list(islice(told, len(each))) for index, each in steps.items()}
    return results


@dataclass(slots=True)
class Space:
    """A namespace as one client knows it: its settings, and the partitions of the queues it has met.

    `is_spread`: its partitions may be at different servers. `keyed` holds over how many partitions keys are dealt out,
    where that are not all.
    """

    settings: ClientSettings
    partitions: dict[str, int] = field(default_factory=dict)
    fsync: Wait | None = None
    """How this server tells that its append-only file is on disk, once a client has asked (see `keeping`)."""
    is_spread: bool = False
    keyed: dict[str, int] = field(default_factory=dict)
    learned_at: dict[str, float] = field(default_factory=dict)

    def place(self, queue: str, number: int) -> Partition:
        return keys.partition(self.settings.namespace, queue, number)

    def place_of(self, job_id: str) -> Partition:
        return self.place(*split_job_id(job_id))

    def choose(self, job: Prepared) -> Partition:
        count = self.partitions[job.queue]
        if count == 1:
            return self.place(job.queue, 0)
        if key := job.concurrency_key or job.key:
            return self.place_of_key(job.queue, key)
        return self.place(job.queue, random.randrange(count))

    def place_of_key(self, queue: str, key: str) -> Partition:
        """Give the partition where equal keys meet, however the queue has grown."""
        return self.place(queue, keys.partition_of_key(key, self.keyed.get(queue) or self.partitions[queue]))

    def learn(self, queue: str, found: Layout) -> None:
        self.partitions[queue] = found.partitions
        self.keyed[queue] = found.keyed
        self.learned_at[queue] = time.monotonic()

    def is_stale(self, queue: str) -> bool:
        """Say whether a queue is to be looked up: it is unknown, or was looked up too long ago."""
        if queue not in self.partitions:
            return True
        now = time.monotonic()
        return now - self.learned_at.setdefault(queue, now) > layout.LAYOUT_S


def register(space: Space, queues: Iterable[str]) -> Plan[None]:
    """Make the queues known that this client has not met yet, see `reregister`; look up again what may have grown."""
    stale = sorted(queue for queue in set(queues) if space.is_stale(queue))
    known = [queue for queue in stale if queue in space.partitions]
    if known:
        found = yield [layout.look(space.settings.namespace, queue) for queue in known]
        for queue, answer in zip(known, found, strict=True):
            if answer is not None:
                space.learn(queue, answer)
                stale.remove(queue)
    yield from reregister(space, stale)


def reregister(space: Space, queues: Iterable[str]) -> Plan[None]:
    """Make queues known, to schedulers at once, before their first job exists; learn their partitions.

    Also for queues met before, where an empty partition may mean that the server has forgotten its registry. What the
    client knows of them stays meanwhile: other calls of it are using that.
    """
    wanted = sorted(queues)
    if not wanted:
        return
    namespace = space.settings.namespace
    # A partition that jobs were put into must not be forgotten with the registry.
    found = yield [
        layout.grow(namespace, queue, space.partitions.get(queue, 1), space.keyed.get(queue)) for queue in wanted
    ]
    for queue, answer in zip(wanted, found, strict=True):
        space.learn(queue, answer)
    if any(answer.is_new for answer in found):
        yield [calls.publish(keys.regroup_channel(namespace), layout.CHANGED)]


def partitions_of(space: Space, queue: str) -> Plan[list[Partition]]:
    """Find where a queue lives, without making it."""
    (found,) = yield [layout.look(space.settings.namespace, queue)]
    return [space.place(queue, number) for number in range(found.partitions if found else 1)]
