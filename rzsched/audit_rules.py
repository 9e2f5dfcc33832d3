"""Judge what an audit saw: one id at a time, with all of its places at one instant. Pure.

Invariant: a live job is in exactly one of the scheduled set, an undelivered ready entry, a pending entry, the parking
place of its concurrency key and the dead stream, and its hash says which.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

_LIVE = frozenset({"PENDING", "RUNNING", "FAILED"})
_ENDED = frozenset({"SUCCEEDED", "CANCELLED"})
_PLACES = {
    "PENDING": {"scheduled", "undelivered", "pending", "parked"},
    "RUNNING": {"pending"},
    "FAILED": {"scheduled"},
    "DEAD": {"dead"},
}
NUMBERS = frozenset({
    "attempts", "max_retries", "due_at", "priority", "expires_ms", "timeout_ms", "retention_ms", "idempotency_ttl_ms",
    "concurrency_limit", "unknown_since", "created_at", "replays", "scheduled_for",
})  # fmt: skip
_PRIORITIES = frozenset("0123456789")
Faults = Iterator[tuple[str, str]]


def text_of(value: bytes) -> str:
    """Show any bytes; what is no UTF-8 is escaped."""
    return value.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What is wrong (`kind`), with which key or job, and how it looks."""

    kind: str
    key: str
    detail: str


@dataclass(slots=True)
class Counts:
    """Jobs by place; `foreign` are dead entries that belong to no job, `ended` those waiting to expire."""

    scheduled: int = 0
    ready: int = 0
    delivered: int = 0
    running: int = 0
    parked: int = 0
    dead: int = 0
    ended: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """An entry and what is there: undelivered, pending, hollow, left, dead, parked or gone (see `audit.lua`)."""

    entry: str
    what: str
    id: bytes
    consumer: str


@dataclass(frozen=True, slots=True)
class Look:
    """One id with all that says where it is, at one instant; `key` where an idempotency key led to it."""

    partition: str
    id: bytes
    key: bytes
    fields: dict[str, str]
    ttl_ms: int
    score: str
    lock: str
    holder: bytes
    holder_ttl_ms: int
    slot: str
    places: tuple[Place, ...]

    @property
    def state(self) -> str:
        return self.fields.get("state") or "PENDING"

    @property
    def known(self) -> bool:
        return bool(self.fields.get("task"))

    @property
    def entries(self) -> list[Place]:
        """Say where in the streams the id is; a hollow entry has lost its id and counts for whom it was seen for."""
        return [
            place
            for place in self.places
            if place.what == "hollow" or (place.what != "gone" and place.id == self.id)
        ]


def examine(look: Look) -> list[Finding]:
    """Say what is wrong with one id; nothing when all is well. Pure."""
    if look.key:
        wrong: Iterable[tuple[str, str]] = _key_faults(look)
    elif not look.known:
        wrong = _stranger_faults(look)
    elif look.state in _LIVE or look.state == "DEAD":
        wrong = _place_faults(look, "dead" if look.state == "DEAD" else "")
    elif look.state in _ENDED:
        wrong = _ended_faults(look)
    else:
        wrong = iter([("unknown_state", look.state)])
    if look.known and not look.id.startswith(f"{look.partition}.".encode()):
        wrong = chain(wrong, [("wrong_partition", f"the id does not belong to {look.partition}")])
    if look.known:
        wrong = chain(wrong, _occurrence_faults(look))
    return [Finding(kind, text_of(look.id or look.key) or look.partition, detail) for kind, detail in wrong]


def _occurrence_faults(look: Look) -> Faults:
    """Check that the id of an occurrence is made of its schedule and instant, and no other id is."""
    schedule, instant = look.fields.get("schedule_id"), look.fields.get("scheduled_for")
    name = text_of(look.id).partition(".")[2].partition(".")[2]
    if schedule is not None:
        if name != f"{schedule}-{instant}":
            yield "wrong_occurrence", f"it says schedule {schedule} at {instant}"
    elif name.rpartition("-")[0] and name.rpartition("-")[2].isdecimal():
        yield "occurrence_without_schedule", "its hash names no schedule"


def _key_faults(look: Look) -> Faults:
    """Check a key that was seen to name this id. One with a TTL goes by itself; one without must be a live job's."""
    key = text_of(look.key)
    if look.holder != look.id or look.holder_ttl_ms != -1:
        return
    if not look.known:
        yield "key_without_job", f"idempotency key {key!r} never expires and names no job"
    elif look.state not in _LIVE:
        yield "key_of_ended_job", f"idempotency key {key!r} never expires, its job is {look.state}"
    elif look.fields.get("idempotency_key") != key:
        yield "key_of_other_job", f"idempotency key {key!r} names a job that holds another key or none"


def _stranger_faults(look: Look) -> Faults:
    """Check an id without a job: nothing may name it, but dead entries without an id."""
    if look.ttl_ms == -1:
        yield "record_without_task", f"the hash holds {', '.join(sorted(look.fields)) or 'no known field'}"
    if look.score:
        yield "scheduled_without_job", f"in the scheduled set, due at {look.score}"
    if look.lock:
        yield "lock_without_job", look.lock
    for place in look.entries:
        if place.what == "hollow":
            yield "pending_without_entry", f"{place.entry}, pending for {place.consumer}"
        elif place.what != "dead" or look.id:
            yield "entry_without_job", f"{place.what} {place.entry}"


def _place_faults(look: Look, dead: str) -> Faults:
    """Check a live or dead job: one place, the right one for its state, and a hash that says so."""
    names = (["scheduled"] if look.score else []) + [f"{place.what} {place.entry}" for place in look.entries]
    own = look.fields.get("entry", "")
    if not names:
        yield "nowhere", f"{look.state}, its hash names {own or 'no entry'}"
    elif len(names) > 1:
        yield "two_places", f"{look.state} in {', '.join(names)}"
    elif own != (look.entries[0].entry if look.entries else ""):
        yield "wrong_entry", f"in {names[0]}, its hash names {own or 'no entry'}"
    else:
        place = look.entries[0].what if look.entries else "scheduled"
        if place not in _PLACES[look.state]:
            yield "wrong_place", f"{look.state} in {names[0]}"
        yield from _lock_faults(look, place)
    if look.ttl_ms != -1:
        yield "expires_alive", f"{look.state} and gone in {look.ttl_ms} ms"
    key = look.fields.get("idempotency_key")
    if key and not dead and look.holder != look.id:
        yield "key_not_held", f"idempotency key {key!r} names {text_of(look.holder) or 'nothing'}"
    yield from _slot_faults(look, names)
    yield from _attempt_faults(look)


def _slot_faults(look: Look, names: list[str]) -> Faults:
    """Check the slot of a concurrency key: who runs has one, and none is held where no end of a run would free it."""
    key = look.fields.get("concurrency_key", "")
    if look.slot and look.slot != key:
        yield "slot_of_other_key", f"holds a slot of {look.slot!r}, its key is {key!r}"
    elif look.slot and not any(name.startswith(("undelivered", "pending")) for name in names):
        yield "slot_not_needed", f"holds a slot of {key!r} in {', '.join(names) or 'no place'}"
    elif key and not look.slot and look.state == "RUNNING":
        yield "slot_not_held", f"runs without a slot of {key!r}"


def _lock_faults(look: Look, place: str) -> Faults:
    """Check the lock, where there is one: a run whose lease ran out has none until it is recovered."""
    if not look.lock:
        return
    if look.state != "RUNNING" or place != "pending":
        yield "lock_without_run", f"{look.lock}, the job is {look.state}"
        return
    expected = f"{look.entries[0].consumer}#{look.fields.get('fence', '')}"
    if look.lock != expected:
        yield "wrong_lock", f"{look.lock}, not {expected}"


def _attempt_faults(look: Look) -> Faults:
    # A dead job keeps what may be the very reason why it is dead.
    for name in NUMBERS & look.fields.keys() if look.state != "DEAD" else ():
        if not is_whole(look.fields[name]) or (name == "priority" and look.fields[name] not in _PRIORITIES):
            yield "unreadable_field", f"{name} is {look.fields[name][:40]!r}, and counts as not said"
    attempts = _number(look, "attempts", look.state == "RUNNING")
    most = _number(look, "max_retries", 10**9) + 1
    if not (look.state == "RUNNING") <= attempts <= most:
        yield "wrong_attempts", f"{look.state} after {attempts} attempts of at most {most}"


def is_whole(text: str) -> bool:
    """Say whether scripts can read a number, see `whole` in `lua/lib/partition.lua`."""
    digits = text.removeprefix("-")
    return len(text) <= 15 and digits.isascii() and digits.isdecimal()


def _number(look: Look, name: str, default: int) -> int:
    text = look.fields.get(name, "")
    return int(text) if is_whole(text) else default


def _ended_faults(look: Look) -> Faults:
    names = (["scheduled"] if look.score else []) + [f"{place.what} {place.entry}" for place in look.entries]
    if names:
        yield "ended_in_place", f"{look.state} in {', '.join(names)}"
    if look.lock:
        yield "lock_without_run", f"{look.lock}, the job is {look.state}"
    if look.ttl_ms == -1:
        yield "never_expires", f"{look.state} without a TTL"
    if look.slot:
        yield "slot_not_needed", f"{look.state} and holds a slot of {look.slot!r}"


def count_place(look: Look, counts: Counts) -> None:
    """Add one id to the counts; one that is in several places counts where its hash says."""
    if look.key or not look.known:
        counts.foreign += sum(place.what == "dead" for place in look.entries) if not look.id else 0
    elif look.state == "DEAD":
        counts.dead += 1
    elif look.state in _ENDED:
        counts.ended += 1
    elif look.state == "RUNNING":
        counts.running += 1
    elif look.score:
        counts.scheduled += 1
    elif any(place.what == "parked" for place in look.entries):
        counts.parked += 1
    elif any(place.what == "pending" for place in look.entries):
        counts.delivered += 1
    else:
        counts.ready += 1
