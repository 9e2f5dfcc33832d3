"""What a write waits for beyond the server's memory: replicas (WAIT), or the append-only file on disk (WAITAOF).

A durable call travels in one exchange, on one connection, with a mark and a wait behind it. WAIT and WAITAOF look at
the last write of their own connection, and a call that found its job there already wrote nothing: the mark is a write
that is always one, so the wait covers all that the server had written before it, whoever wrote it.

The call and its wait are one unit. What ran counts as settled only once the wait has answered on the same connection.
Where that answer is lost, a repeatable call is sent again with a mark and a wait of its own: on a server that took
over meanwhile a wait alone would vouch for a write that this server may never have seen. Where it isn't met, the
answer comes back as it is, with what is lacking: the job stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rzsched.calls import Argument
from rzsched.errors import one_line
from rzsched.keys import Partition

S = TypeVar("S")
MARK, WAIT, ROLE = -1, -2, -3
"""Where the replies of the mark, the wait and the question behind it belong; calls have indexes from 0."""
WAITS = "waits"
"""The mark: a counter in the partition's stats, of the waits there."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What to wait for, and how long.

    `by` is the command that tells: WAIT, WAITAOF, or CONFIG where the server has the file on disk before it answers
    (`appendfsync always`), so that only this is to be seen.
    """

    by: str
    replicas: int
    timeout_ms: int

    def command(self) -> tuple[Argument, ...]:
        if self.by == "CONFIG":
            return ("CONFIG", "GET", "*append*")
        if self.by == "WAIT":
            return ("WAIT", self.replicas, self.timeout_ms)
        return ("WAITAOF", 1, 0, self.timeout_ms)

    def lack(self, reply: Any) -> str:
        """Say what is lacking by the command's reply; '' where the wait is met."""
        if isinstance(reply, Exception):
            return f"the server refused {self.by}: {one_line(str(reply), 120)}"
        if self.by == "CONFIG":
            return "" if fsyncs_always(reply) else "appendfsync is not always any more"
        if self.by == "WAIT":
            return "" if reply >= self.replicas else (
                f"{reply} of {self.replicas} replicas had the write after {self.timeout_ms / 1000:g} s")
        return "" if reply[0] >= 1 else f"the append-only file was not on disk after {self.timeout_ms / 1000:g} s"


def table(reply: Any) -> dict[bytes, bytes]:
    """Read what CONFIG GET answers, as a dictionary."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def fsyncs_always(reply: Any) -> bool:
    """Say whether CONFIG GET tells of a server that writes its file before it answers, at any time."""
    told = table(reply)
    return (told.get(b"appendonly"), told.get(b"appendfsync"), told.get(b"no-appendfsync-on-rewrite")) == (
        b"yes", b"always", b"no",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Durably(Generic[S]):
    """A step on one partition that is to be durable; its answer is a `Kept`."""

    partition: Partition
    step: S
    wait: Wait


class Kept(NamedTuple):
    """The answer of a durable step; `lack` says what it still lacks, '' where it is as durable as was asked."""

    answer: Any
    lack: str


class Barrier:
    """What the durable calls of one exchange wait for together."""

    def __init__(self, steps: dict[int, Durably[Any]]) -> None:
        waits = {step.wait for step in steps.values()}
        if len(waits) > 1:
            raise ValueError("calls with different waits can't travel together")
        self._wait = next(iter(waits), None)
        self._partitions = {index: step.partition for index, step in steps.items()}
        self._lacking = ""
        self.answers: dict[int, Any] = {}
        """What calls answered that ran on this connection, by index: they wait."""
        self.known: dict[int, Any] = {}
        """The same of all tries, for what is to be said at the end."""

    @property
    def stands(self) -> bool:
        """Say whether any call of the exchange is durable."""
        return self._wait is not None

    @property
    def asks_role(self) -> bool:
        """Say whether it matters who follows the server by now; see `copies`."""
        return self._wait is not None and self._wait.by == "WAIT"

    def lines(self, calls: list[int]) -> Iterator[tuple[int, tuple[Argument, ...]]]:
        """Give the mark and the wait behind these calls, none where none of them is durable."""
        first = next((index for index in calls if index in self._partitions), None)
        if first is not None and self._wait is not None:
            yield MARK, ("HINCRBY", self._partitions[first].stats, WAITS, 1)
            yield WAIT, self._wait.command()
            if self.asks_role:
                yield ROLE, ("ROLE",)

    def hold(self, index: int, answer: Any) -> bool:
        """Keep the answer of a call until the wait is met; False for a call that needs none."""
        if index not in self._partitions:
            return False
        self.answers[index] = self.known[index] = answer
        return True

    def begin(self) -> None:
        """Forget what ran over another connection: no wait on this one would cover it for sure."""
        self.answers.clear()
        self._lacking = ""

    def marked(self, reply: Any) -> None:
        refused = isinstance(reply, Exception)
        self._lacking = f"the server refused to write: {one_line(str(reply), 120)}" if refused else ""

    def met(self, reply: Any, lack: str = "") -> dict[int, Kept]:
        """Settle what ran, by the wait's reply, and what is lacking besides."""
        assert self._wait is not None
        lack = self._lacking or self._wait.lack(reply) or lack
        settled = {index: Kept(answer, lack) for index, answer in self.answers.items()}
        self.answers.clear()
        return settled
