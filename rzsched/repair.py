"""Mend what a foreign hand broke: one script a mend, which looks anew before it writes.

An audit says where to look, no more: what has moved on by then, or is in the hands of a worker that is alive, is found
sound and left alone. A job that is in no place, in several or in a wrong one is put into one: back to when it was due,
to its ready stream, or among the dead. What has no job behind it goes; where it may be all that is left of somebody's
job it is kept among the dead, as an entry without a job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rzsched import calls, keys
from rzsched.audit import Suspect
from rzsched.audit_rules import text_of
from rzsched.calls import Call
from rzsched.keys import Partition
from rzsched.space import Plan, Space

BATCH = 20


@dataclass(frozen=True, slots=True, order=True)
class Mend:
    """What was done to one key or job, in words."""

    key: str
    what: str


def _read(answer: list[bytes]) -> list[str]:
    return [text_of(word) for word in answer[1:]]


def mend_job(place: Partition, job_id: str | bytes, entries: Sequence[str] = (), now_ms: str = "") -> Call[list[str]]:
    return Call("mend", place.fixed, (now_ms, job_id, len(entries), *entries), _read)


def mend_key(place: Partition, kind: str, key: str | bytes) -> Call[list[str]]:
    return Call("mend_key", place.fixed, ("", kind, key), _read)


def mend_cron(place: Partition, schedule_id: str | bytes, now_ms: str = "") -> Call[list[str]]:
    return Call("mend_cron", place.fixed, (now_ms, schedule_id), _read)


def _mend_partition(space: Space, place: Partition) -> Call[list[str]]:
    """Register a queue that is not; one that has fewer partitions is somebody's choice."""
    def read(is_new: Any) -> list[str]:
        return ["registered its queue again"] if is_new else []

    registry = keys.queues(space.settings.namespace)
    return calls.command("HSETNX", registry, place.queue, place.number + 1, read=read)


def _call(space: Space, suspect: Suspect) -> Call[list[str]]:
    if suspect.kind == "job":
        return mend_job(suspect.place, suspect.id, suspect.entries)
    if suspect.kind == "cron":
        return mend_cron(suspect.place, suspect.id)
    if suspect.kind == "partition":
        return _mend_partition(space, suspect.place)
    return mend_key(suspect.place, suspect.kind, suspect.id)


def repair(space: Space, suspects: Iterable[Suspect]) -> Plan[list[Mend]]:
    """Mend what an audit suspects; give what was done. Keys first: a job takes back what got free."""
    ordered = sorted(set(suspects), key=lambda each: (each.kind != "idem", each.kind, each.place.base, each.id))
    done: list[Mend] = []
    for first in range(0, len(ordered), BATCH):
        batch = ordered[first : first + BATCH]
        answers = yield [_call(space, suspect) for suspect in batch]
        for suspect, what in zip(batch, answers, strict=True):
            name = text_of(suspect.id) or suspect.place.name
            prefix = "" if suspect.kind in {"job", "partition"} else f"{suspect.kind}:"
            done += [Mend(prefix + name, each) for each in what]
    return done
