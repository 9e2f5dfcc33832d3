"""Prove from the keys alone that every job is in exactly one place.

Invariant: a live job is in exactly one of the scheduled set, an undelivered ready entry, a pending entry, the parking
place of its concurrency key and the dead stream, and its hash says which. The audit first gathers, in pages, every id
that any key of a partition names, and where it was seen; then `audit.lua` looks at each id and all of its places at one
instant. Every verb is one script, so a job that moves while ids are gathered is still whole when it is looked at: what
is found holds at that instant, on a live server too, and an id met in between is left to the next audit.

A dead entry whose `id` is '' is a remainder that belongs to no job (see `lua/lib/ending.lua`): counted, no finding.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rzsched import calls, keys, topology
from rzsched.audit_crons import audit_crons
from rzsched.audit_rules import Counts, Finding, Look, Place, count_place, examine, text_of
from rzsched.calls import Argument, Call
from rzsched.keys import Partition
from rzsched.layout import read_registry
from rzsched.space import Plan, Space, together

PAGE = 500
ABREAST = 25
"""How many pages travel together: the streams of all priorities, or as many parking places."""
LOOKS = 100


class Suspect(NamedTuple):
    """What a finding leads back to: a job with the entries it was seen in, a key, an executed mark, a schedule, or a
    partition (`kind` is job, idem, done, cron or partition)."""

    kind: str
    place: Partition
    id: bytes = b""
    entries: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    partitions: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    findings: list[Finding] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """What one partition's keys name: where each id was seen, and the keys to follow."""

    place: Partition
    entries: dict[bytes, set[str]] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    done: list[bytes] = field(default_factory=list)
    crons: list[bytes] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)
    parked: list[str] = field(default_factory=list)

    def see(self, job_id: bytes, *entries: str) -> None:
        self.entries.setdefault(job_id, set()).update(entries)


def audit(space: Space) -> Plan[Report]:
    """Audit every partition of a namespace: those registered, and those that only their keys tell of.

    Reads in pages, writes nothing. At rest its answer is exact; on a live server it reports only what it saw wrong at
    one instant.
    """
    report = Report()
    registered = yield from _registered(space)
    seen = {place.base: _Seen(place) for place in registered}
    yield from _scan_keys(space, seen)
    unregistered: dict[Partition, int] = {}
    for base in sorted(seen):
        found = seen[base]
        before = report.counts.ended
        yield from _gather(found)
        _, crons = yield from together([_look(found, report), audit_crons(found.place, found.crons)])
        for schedule_id, finding in crons:
            report.findings.append(finding)
            report.suspects.append(Suspect("cron", found.place, schedule_id))
        report.partitions.append(found.place.name)
        live = len(found.entries) - (report.counts.ended - before)
        if live and found.place not in registered:
            unregistered[found.place] = live
    if unregistered:  # a queue made while the keys were scanned is no finding
        registered = yield from _registered(space)
    for place, live in unregistered.items():
        if place not in registered:
            report.findings.append(
                Finding("unregistered_partition", place.base, f"{live} jobs that no scheduler looks after")
            )
            report.suspects.append(Suspect("partition", place))
    report.findings.sort()
    return report


def _registered(space: Space) -> Plan[set[Partition]]:
    (counts,) = yield [calls.command("HGETALL", keys.queues(space.settings.namespace), read=read_registry)]
    return {space.place(queue, number) for queue, count in counts.items() for number in range(count)}


def _flat(answer: Any) -> list[bytes]:
    return [part for pair in answer.items() for part in pair] if isinstance(answer, dict) else list(answer)


def _scan_keys(space: Space, seen: dict[str, _Seen]) -> Plan[None]:
    namespace = space.settings.namespace
    pattern = re.compile(rb"%s:\{([A-Za-z0-9_-]{1,64})\.(\d{1,5})\}:(.*)" % namespace.encode(), re.DOTALL)
    routes: list[Argument] = [calls.ANYWHERE]
    if space.is_spread:
        ((*routes,),) = yield [topology.slots_call(topology.one_slot_of_each_master)]
    for route in routes:
        yield from _scan_node(namespace, pattern, route, space, seen)


def _scan_node(namespace: str, pattern: re.Pattern[bytes], route: Argument, space: Space,
               seen: dict[str, _Seen]) -> Plan[None]:
    cursor = b"0"
    while True:
        scan = ("SCAN", cursor, "MATCH", f"{namespace}:{{*}}:*", "COUNT", PAGE * 2)
        ((cursor, page),) = yield [calls.command(*scan, read=tuple, route=route)]
        for key in page:
            if match := pattern.fullmatch(key):
                place = space.place(match[1].decode(), int(match[2]))
                _sort_key(seen.setdefault(place.base, _Seen(place)), match[3])
        if cursor in {b"0", 0}:
            return


def _sort_key(found: _Seen, rest: bytes) -> None:
    kind, _, name = rest.partition(b":")
    if kind in {b"job", b"lock"}:
        found.see(name)
    elif kind == b"idem":
        found.keys.append(name)
    elif kind == b"parked":
        found.parked.append(name.decode("utf-8", "replace"))
    elif kind == b"done":
        found.done.append(name)
    elif kind == b"cron":
        found.crons.append(name)
    elif kind == b"ready" and name in {b"%d" % priority for priority in keys.PRIORITIES}:
        found.streams.add(int(name))


def _gather(found: _Seen) -> Plan[None]:
    """Page through the scheduled set, the parking places and the streams, a page of several at a time."""
    place = found.place
    places: list[Plan[None]] = [_gather_set(found, place.scheduled), _gather_stream(found, place.dead, "dead")]
    for priority in sorted(found.streams):
        places += _gather_pending(found, priority), _gather_stream(found, place.ready[priority], str(priority))
    places += [_gather_set(found, place.parked(key), f"parked/{key}") for key in sorted(set(found.parked))]
    for first in range(0, len(places), ABREAST):
        yield from together(places[first : first + ABREAST])


def _gather_set(found: _Seen, name: str, *entries: str) -> Plan[None]:
    cursor = b"0"
    while True:
        ((cursor, page),) = yield [calls.command("ZSCAN", name, cursor, "COUNT", PAGE, read=tuple)]
        for job_id in page[::2]:
            found.see(job_id, *entries)
        if cursor in {b"0", 0}:
            return


def _gather_stream(found: _Seen, stream: str, prefix: str) -> Plan[None]:
    start = "-"
    while True:
        (page,) = yield [calls.command("XRANGE", stream, start, "+", "COUNT", PAGE, read=list)]
        for entry, values in page:
            found.see(_id_of(values), f"{prefix}/{entry.decode()}")
        if len(page) < PAGE:
            return
        start = f"({page[-1][0].decode()}"


def _id_of(values: Any) -> bytes:
    flat = _flat(values or [])
    return next((value for name, value in zip(flat[::2], flat[1::2], strict=True) if name == b"id"), b"")


def _gather_pending(found: _Seen, priority: int) -> Plan[None]:
    """Find pending entries whose stream entry is gone; the others are met in the stream itself."""
    stream, start = found.place.ready[priority], "-"
    (groups,) = yield [calls.command("XINFO", "GROUPS", stream, read=list, route=stream)]
    if keys.GROUP.encode() not in {part for group in groups for part in _flat(group) if isinstance(part, bytes)}:
        return
    while True:
        (page,) = yield [calls.command("XPENDING", stream, keys.GROUP, start, "+", PAGE, read=list)]
        ids = [row[0].decode() for row in page]
        present = yield [calls.command("XRANGE", stream, entry, entry, read=bool) for entry in ids] if ids else []
        for entry, there in zip(ids, present, strict=True):
            if not there:
                found.see(b"", f"{priority}/{entry}")
        if len(page) < PAGE:
            return
        start = f"({ids[-1]}"


def _look(found: _Seen, report: Report) -> Plan[None]:
    """Look at all that was seen, a bounded number of ids and entries at a time."""
    items = list(_items(found))
    for names in _chunks(found.keys):
        holders = yield [calls.command("GET", found.place.idem(name), read=_bytes) for name in names]
        items += [(holder, name, []) for holder, name in zip(holders, names, strict=True) if holder]
    for chunk in _chunks(items):
        (looks,) = yield [look_call(found.place, chunk)]
        for look, (job_id, key, entries) in zip(looks, chunk, strict=True):
            count_place(look, report.counts)
            wrong = examine(look)
            if wrong:
                report.findings += wrong
                report.suspects.append(
                    Suspect("idem", found.place, key) if key else Suspect("job", found.place, job_id, tuple(entries))
                )
    for names in _chunks(found.done):
        ttls = yield [calls.command("PTTL", found.place.done(name), read=int) for name in names]
        for name in (name for name, ttl in zip(names, ttls, strict=True) if ttl == -1):
            report.findings.append(
                Finding("mark_never_expires", f"done:{text_of(name)}", "an executed mark without a TTL")
            )
            report.suspects.append(Suspect("done", found.place, name))


Item = tuple[bytes, bytes, list[str]]


def _items(found: _Seen) -> Iterator[Item]:
    for job_id, entries in found.entries.items():
        chunks = list(_chunks(sorted(entries))) or [[]]
        if job_id:  # more entries than a chunk holds would be foreign, and two of them tell enough
            chunks = chunks[:1]
        for chunk in chunks:
            yield job_id, b"", chunk


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    every = list(items)
    for first in range(0, len(every), LOOKS):
        yield every[first : first + LOOKS]


def _bytes(answer: Any) -> bytes:
    return answer or b""


def look_call(place: Partition, items: list[Item]) -> Call[list[Look]]:
    args: list[Argument] = ["", len(items)]
    for job_id, key, entries in items:
        args += (job_id, key, len(entries), *entries)

    def read(answer: list[Any]) -> list[Look]:
        parts = zip(items, answer[1::3], answer[2::3], answer[3::3], strict=True)
        return [_read_look(place, item, fields, facts, places) for item, fields, facts, places in parts]

    return Call("audit", place.fixed, args, read)


def _read_look(place: Partition, item: Item, fields: list[bytes], facts: list[bytes], places: list[Any]) -> Look:
    told = dict(zip(facts[::2], facts[1::2], strict=True))
    return Look(
        partition=place.name,
        id=item[0],
        key=item[1],
        fields={text_of(name): text_of(value) for name, value in zip(fields[::2], fields[1::2], strict=True)},
        ttl_ms=int(told[b"ttl_ms"]),
        score=text_of(told[b"score"]),
        lock=text_of(told[b"lock"]),
        holder=told[b"holder"],
        holder_ttl_ms=int(told[b"holder_ttl_ms"]),
        slot=text_of(told[b"slot"]),
        places=tuple(Place(text_of(row[0]), text_of(row[1]), row[2], text_of(row[3])) for row in places),
    )
