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
        if key := job.concurrency_key or job.key:
            return self.place(job.queue, keys.partition_of_key(key, count))
        return self.place(job.queue, random.randrange(count))


def register(space: Space, queues: Iterable[str]) -> Plan[None]:
    """Make the queues known that this client has not met yet; see `reregister`."""
    unknown = set(queues) - space.partitions.keys()
    if unknown:
        yield from reregister(space, unknown)


def reregister(space: Space, queues: Iterable[str]) -> Plan[None]:
    """Make queues known, to schedulers at once, before their first job exists; learn their partitions.

    Also for queues met before, where an empty partition may mean that the server has forgotten its registry. What the
    client knows of them stays meanwhile: other calls of it are using that.
    """
    wanted = sorted(queues)
    if not wanted:
        return
    registry = keys.queues(space.settings.namespace)
    are_new = yield [calls.command("HSETNX", registry, queue, 1, read=int) for queue in wanted]
    steps: list[Step] = [calls.command("HGET", registry, queue, read=int) for queue in wanted]
    if any(are_new):
        steps.append(calls.publish(keys.regroup_channel(space.settings.namespace), "queues"))
    answers = yield steps
    space.partitions.update(zip(wanted, answers, strict=False))


def partitions_of(space: Space, queue: str) -> Plan[list[Partition]]:
    """Find where a queue lives, without making it."""
    registry = keys.queues(space.settings.namespace)
    (count,) = yield [calls.command("HGET", registry, queue, read=lambda value: int(value or 1))]
    return [space.place(queue, number) for number in range(count)]
