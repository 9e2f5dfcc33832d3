"""The steps that concern schedules, as values; see `calls`."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rzsched.calls import Argument, Call, command
from rzsched.keys import Partition
from rzsched.schedule import Timing, read_timing

NEVER = "never"


def next_text(next_ms: int | None) -> str:
    return NEVER if next_ms is None else str(next_ms)


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """`read_next` is the stored next instant as text, the guard of the firing; '' where it is lost.

    `timing` is None where a foreign hand has made the definition unreadable.
    """

    id: str
    read_next: str
    fingerprint: str
    timing: Timing | None


@dataclass(frozen=True, slots=True)
class Due:
    now_ms: int
    schedules: list[DueSchedule]


def due(place: Partition, limit: int, ahead_ms: int = 0, now_ms: str = "") -> Call[Due]:
    """Read schedules that are due, or will be within `ahead_ms`."""

    def read(answer: list[Any]) -> Due:
        rows = zip(answer[2::4], answer[3::4], answer[4::4], answer[5::4], strict=True)
        return Due(int(answer[1]), [_due_schedule(*row) for row in rows])

    return Call("due", place.fixed, (now_ms, ahead_ms, limit), read)


def _due_schedule(schedule_id: bytes, read_next: bytes, fingerprint: bytes, values: list[bytes]) -> DueSchedule:
    timing = None
    with contextlib.suppress(ValueError, AttributeError):
        timing = read_timing(tuple(values))
    name, at, what = (value.decode("utf-8", "replace") for value in (schedule_id, read_next, fingerprint))
    return DueSchedule(name, at, what, timing)


def postpone(place: Partition, schedule_id: str, until_ms: int) -> Call[int]:
    """Look at a schedule later that cannot be read now."""
    return command("ZADD", place.crons, "XX", until_ms, schedule_id, read=int)


class Fired(NamedTuple):
    """`stopping`: pairs of worker and job, to be told at once what the next renewal would tell."""

    status: str
    stopping: list[tuple[str, str]]


def fire(place: Partition, schedule_id: str, read_next: str, next_ms: int | None, missed: int,
         occurrences: Sequence[tuple[int, str, str]], now_ms: str = "", fingerprint: str = "") -> Call[Fired]:
    """Fire occurrences given as (instant, start or '' for at once, note)."""
    args: list[Argument] = [now_ms, schedule_id, read_next, fingerprint, next_text(next_ms), missed, len(occurrences)]
    for occurrence in occurrences:
        args += occurrence

    def read(answer: list[bytes]) -> Fired:
        words = [value.decode() for value in answer]
        pairs = list(zip(words[1::2], words[2::2], strict=True)) if words[0] == "FIRED" else []
        return Fired(words[0], pairs)

    return Call("fire", place.fixed, args, read)


def register(place: Partition, registry: str, schedule_id: str, fingerprint: str, next_ms: int | None, owner: str,
             fields: Sequence[str | bytes], now_ms: str = "") -> Call[str]:
    args = (now_ms, registry, schedule_id, fingerprint, next_text(next_ms), owner, len(fields), *fields)
    return Call("register", place.fixed, args, _status)


def unregister(place: Partition, schedule_id: str, owner: str = "", now_ms: str = "") -> Call[str]:
    return Call("unregister", place.fixed, (now_ms, schedule_id, owner), _status)


def pause(place: Partition, schedule_id: str, now_ms: str = "") -> Call[str]:
    return Call("pause_cron", place.fixed, (now_ms, schedule_id), _status)


def resume(place: Partition, schedule_id: str, fingerprint: str, next_ms: int | None, now_ms: str = "") -> Call[str]:
    return Call("resume_cron", place.fixed, (now_ms, schedule_id, fingerprint, next_text(next_ms)), _status)


def trigger(place: Partition, schedule_id: str, note: str, instants: Sequence[int | str],
            now_ms: str = "") -> Call[list[tuple[str, str]] | None]:
    """Write occurrences, '' for one now; answer pairs of job id and what became of it, None for no such schedule.

    Not repeatable: an occurrence of now would be another one the second time.
    """

    def read(answer: list[bytes]) -> list[tuple[str, str]] | None:
        words = [value.decode() for value in answer]
        return list(zip(words[1::2], words[2::2], strict=True)) if words[0] == "TRIGGERED" else None

    return Call("trigger", place.fixed, (now_ms, schedule_id, note, len(instants), *instants), read, repeatable=False)


def rearm(place: Partition, now_ms: str = "") -> Call[int]:
    return Call("rearm", place.fixed, (now_ms,), lambda answer: int(answer[1]))


def _status(answer: list[bytes]) -> str:
    return answer[0].decode()
