"""Audit the schedules of a partition: definition, set of next instants and index must agree."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rzsched import calls
from rzsched.audit_rules import Finding, text_of
from rzsched.calls import Call
from rzsched.keys import Partition
from rzsched.space import Plan

LOOKS = 200


class CronLook(NamedTuple):
    """One schedule at one instant, '' for what is not there; `listed` is '1' where the index has it."""

    id: str
    task: str
    next: str
    paused: str
    score: str
    listed: str


def look_call(place: Partition, ids: list[bytes]) -> Call[list[CronLook]]:
    def read(answer: list[bytes]) -> list[CronLook]:
        words = [text_of(value) for value in answer[1:]]
        return [CronLook(*words[first : first + 6]) for first in range(0, len(words), 6)]

    return Call("audit_crons", place.fixed, ("", len(ids), *ids), read)


def audit_crons(place: Partition, ids: Iterable[bytes]) -> Plan[list[tuple[bytes, Finding]]]:
    """Look at the schedules whose hashes were seen, and at all that the other keys name."""
    armed, listed = yield [
        calls.command("ZRANGE", place.crons, 0, -1, read=list),
        calls.command("SMEMBERS", place.schedules, read=list),
    ]
    every = sorted({*ids, *armed, *listed})
    findings: list[tuple[bytes, Finding]] = []
    for first in range(0, len(every), LOOKS):
        ids_of_page = every[first : first + LOOKS]
        (looks,) = yield [look_call(place, ids_of_page)]
        findings += [
            (schedule_id, Finding(kind, f"cron:{look.id}", detail))
            for schedule_id, look in zip(ids_of_page, looks, strict=True)
            for kind, detail in faults(look)
        ]
    return findings


def faults(look: CronLook) -> Iterator[tuple[str, str]]:
    """Say what is wrong with one schedule. One that is gone everywhere was removed since it was seen. Pure."""
    if not look.task:
        if look.score or look.listed == "1":
            yield "schedule_without_definition", "there is no definition behind it"
        return
    if look.listed != "1":
        yield "schedule_unlisted", "a sweep would not find it"
    if not look.score:
        yield "schedule_not_armed", f"its next instant {look.next or '(lost)'} is not in the set of next instants"
    elif not _agrees(look):
        yield "schedule_wrong_instant", f"the set says {look.score}, the definition {look.next or 'nothing'}"


def _agrees(look: CronLook) -> bool:
    waits_for_nothing = bool(look.paused) or look.next == "never"
    expected: Any = "inf" if waits_for_nothing else look.next
    try:
        return float(look.score) == float(expected)
    except ValueError:
        return False
