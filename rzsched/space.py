"""A namespace as one client knows it, and where its queues live."""

import random
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rzsched import calls, keys
from rzsched.config import ClientSettings
from rzsched.exchange import Step
from rzsched.job import Prepared
from rzsched.keys import Partition
from rzsched.names import split_job_id

T = TypeVar("T")
Plan = Generator[list[Step], list[Any], T]
"""An operation, sans-I/O: it yields steps that may travel together, receives their answers in the same order, and
returns its result. No steps at all let others have their turn."""


@dataclass(slots=True)
class Space:
    """A namespace as one client knows it: its settings, and the partitions of the queues it has met."""

    settings: ClientSettings
    partitions: dict[str, int] = field(default_factory=dict)

    def place(self, queue: str, number: int) -> Partition:
        return keys.partition(self.settings.namespace, queue, number)

    def place_of(self, job_id: str) -> Partition:
        return self.place(*split_job_id(job_id))

    def choose(self, job: Prepared) -> Partition:
        count = self.partitions[job.queue]
        if count == 1:
            return self.place(job.queue, 0)
        if job.key:
            return self.place(job.queue, keys.partition_of_key(job.key, count))
        return self.place(job.queue, random.randrange(count))


def register(space: Space, queues: Iterable[str]) -> Plan[None]:
    """Make a queue known before its first job exists, so that no scheduler can miss it; learn its partitions."""
    wanted = sorted(set(queues) - space.partitions.keys())
    if not wanted:
        return
    registry = keys.queues(space.settings.namespace)
    yield [calls.command("HSETNX", registry, queue, 1, read=int) for queue in wanted]
    counts = yield [calls.command("HGET", registry, queue, read=int) for queue in wanted]
    space.partitions.update(zip(wanted, counts, strict=True))


def partitions_of(space: Space, queue: str) -> Plan[list[Partition]]:
    """Find where a queue lives, without making it."""
    registry = keys.queues(space.settings.namespace)
    (count,) = yield [calls.command("HGET", registry, queue, read=lambda value: int(value or 1))]
    return [space.place(queue, number) for number in range(count)]


def reregister(space: Space, queues: set[str]) -> Plan[None]:
    """Register again where the server had forgotten: an empty partition may mean an empty registry."""
    for queue in queues:
        space.partitions.pop(queue, None)
    yield from register(space, queues)
