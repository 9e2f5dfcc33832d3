"""Names and job ids, checked before they become part of a key.

A name that passes here holds no character that means anything in a key, a hash tag, a MATCH pattern
or a shell, so no two pairs of names can share a key. A job id is `<queue>.<partition>.<random>`; a
queue holds no dot, so an id splits in one way only.
"""

import os
import re
from functools import lru_cache

from rzsched.errors import InvalidName

KEY_BYTES = 512

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_RULE = "use 1 to 64 ASCII letters, digits, '_' or '-'"
_DOTTED = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_DOTTED_RULE = "use 1 to 200 ASCII letters, digits, '_', '-' or '.'"
# An occurrence's id ends in its schedule's id, which may hold dots, and its instant.
_JOB_ID = re.compile(
    r"([A-Za-z0-9_-]{1,64})\.(0|[1-9][0-9]{0,4})\.(?:[A-Za-z0-9_-]{1,200}|[A-Za-z0-9_.-]{1,200}-[0-9]{1,15})"
)
_JOB_ID_RULE = "use <queue>.<partition>.<letters, digits, '_' or '-'>, as it was given out"

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_TIME_DIGITS = 7


def check_queue(value: str) -> str:
    """Return a queue's name as a plain str, or raise InvalidName."""
    return _check_name("queue", _plain("queue", value))


def check_namespace(value: str) -> str:
    """Return a namespace as a plain str, or raise InvalidName."""
    return _check_name("namespace", _plain("namespace", value))


def check_worker_id(value: str) -> str:
    """Return a worker's id as a plain str, or raise InvalidName."""
    return _check_name("worker id", _plain("worker id", value))


def check_task(value: str) -> str:
    """Return a task's name as a plain str, or raise InvalidName."""
    return _check_dotted("task", _plain("task", value))


def check_schedule_id(value: str) -> str:
    """Return a schedule's id as a plain str, or raise InvalidName.

    The rule is that of tasks, since a schedule's default id is its task's name.
    """
    return _check_dotted("schedule id", _plain("schedule id", value))


def check_idempotency_key(value: str, kind: str = "idempotency_key") -> str:
    """Return a key of the user's own making as a plain str, or raise InvalidName."""
    text = _plain(kind, value)
    try:
        fits = 0 < len(text) <= KEY_BYTES and len(text.encode()) <= KEY_BYTES
    except UnicodeEncodeError:
        raise InvalidName(kind, text, "use text without lone surrogates") from None
    if not fits:
        raise InvalidName(kind, text, f"use 1 to {KEY_BYTES} bytes of UTF-8")
    return text


def new_job_ids(queue: str, partition: int, count: int, now_ms: int) -> list[str]:
    """Make fresh job ids; the queue is taken as checked.

    Behind the partition stand 7 characters of time (as in UUIDv7, so that ids sort by age, and a scheduled job need not
    store when it was made) and 8 of chance, 47 bits in each ms. Ids made together differ in their last two.
    """
    ids: list[str] = []
    head = f"{queue}.{partition}.{_time_digits(now_ms)}"
    while len(ids) < count:
        chance = int.from_bytes(os.urandom(8))  # drawn anew for each call: a forked child must not repeat its parent
        chance, a = divmod(chance, 3844)
        chance, b = divmod(chance, 3844)
        chance, c = divmod(chance, 3844)
        prefix = head + _PAIRS[a] + _PAIRS[b] + _PAIRS[c]
        if count == 1:
            return [prefix + _PAIRS[chance % 3844]]
        ids += [prefix + pair for pair in _PAIRS[: count - len(ids)]]
    return ids


def new_job_id(queue: str, partition: int, now_ms: int) -> str:
    return new_job_ids(queue, partition, 1, now_ms)[0]


@lru_cache(maxsize=16)
def _time_digits(now_ms: int) -> str:
    digits = ""
    for _ in range(_TIME_DIGITS):
        now_ms, digit = divmod(now_ms, 62)
        digits = _DIGITS[digit] + digits
    return digits


def job_id_ms(job_id: str) -> int | None:
    """Read when an id was made, in ms since the epoch by its maker's clock; None for an id of another make."""
    digits = job_id.rpartition(".")[2]
    if len(digits) != _TIME_DIGITS + 8 or not digits.isalnum():
        return None
    value = 0
    for digit in digits[:_TIME_DIGITS]:
        value = value * 62 + _VALUES.get(digit, 0)
    return value


def split_job_id(job_id: str) -> tuple[str, int]:
    """Return the queue and the partition that a job id names, or raise InvalidName."""
    text = _plain("job id", job_id)
    match = _JOB_ID.fullmatch(text)
    if match is None:
        raise InvalidName("job id", text, _JOB_ID_RULE)
    return match[1], int(match[2])


def _plain(kind: str, value: str) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        # A StrEnum member, say: its own str() or format() could put another text into the key.
        return str.__str__(value)
    raise TypeError(f"{kind}: pass a str, not {type(value).__name__}")


# The caches are bounded and hold only what passed, so nothing hostile can fill memory.
@lru_cache(maxsize=512)
def _check_name(kind: str, value: str) -> str:
    if _NAME.fullmatch(value) is None:
        raise InvalidName(kind, value, _NAME_RULE)
    return value


@lru_cache(maxsize=512)
def _check_dotted(kind: str, value: str) -> str:
    if _DOTTED.fullmatch(value) is None:
        raise InvalidName(kind, value, _DOTTED_RULE)
    return value
