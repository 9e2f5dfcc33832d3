"""How many partitions a queue has, as the registry holds it.

A queue may grow while it is in use, never shrink: an id says in which partition its job is, and a partition stays. What
has no key goes to any partition, so it does not matter who knows of a new one first. What has a key must meet its like,
so keys (of jobs and of schedules) are dealt out over as many partitions as the queue had when it was made: `keyed`.
The registry holds it in the field `<queue>/keyed` beside `<queue>`, once the two differ.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from rzsched import keys
from rzsched.calls import Call, command
from rzsched.status import whole

MOST_PARTITIONS = 1000
LAYOUT_S = 5.0
"""How old what is known of a queue may be: within this time everybody has met its new partitions."""
CHANGED = "queues"
"""What the regroup channel says when a queue is new or has grown."""


class Layout(NamedTuple):
    """`is_new`: the queue was unknown until this step."""

    partitions: int
    keyed: int
    is_new: bool = False


def grow(namespace: str, queue: str, partitions: int = 1, keyed: int | None = None, now_ms: str = "") -> Call[Layout]:
    """Register a queue with at least so many partitions."""

    def read(answer: list[bytes]) -> Layout:
        return _layout(answer[1], answer[2])._replace(is_new=answer[0] == b"NEW")

    args = (now_ms, queue, partitions, "" if keyed is None else keyed)
    return Call("grow", (keys.queues(namespace),), args, read)


def look(namespace: str, queue: str) -> Call[Layout | None]:
    """Look up a queue; None where it is not registered."""

    def read(answer: list[bytes | None]) -> Layout | None:
        partitions, keyed = answer
        return None if partitions is None else _layout(partitions, keyed)

    return command("HMGET", keys.queues(namespace), queue, _keyed_field(queue), read=read)


def _layout(partitions: bytes, keyed: bytes | None) -> Layout:
    count = max(whole(partitions, 1), 1)
    return Layout(count, max(whole(keyed, count), 1))


def read_registry(answer: Any) -> dict[str, int]:
    """Read the whole registry as queue -> number of partitions, by name."""
    pairs: Iterable[tuple[bytes, bytes]]
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {name.decode(): max(whole(count, 1), 1) for name, count in sorted(pairs) if b"/" not in name}


def _keyed_field(queue: str) -> str:
    return f"{queue}/keyed"
