"""One exchange with a server, sans-I/O: what to send, what each reply means, and what may be sent again.

Each call of an exchange has its own outcome, so that calls of several callers may travel together. A call stays
open, and is sent again, while it surely did not run: nothing was sent yet, the server knew its script not, or it
refused for a reason that passes (LOADING, READONLY). Where an answer was lost on the way the call may have run:
only one that is `repeatable` is then sent again, the others fail. A call that is to be durable stays open until its
wait has been answered too (see `durability`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from redis.exceptions import AskError, NoPermissionError, NoScriptError

from rzsched.calls import Argument, Call, Enqueue, enqueue
from rzsched.copies import Attached, attached
from rzsched.durability import MARK, ROLE, Barrier, Durably, Kept
from rzsched.errors import ServerUnsuitable
from rzsched.job import Prepared
from rzsched.keys import Partition
from rzsched.packing import pack_command
from rzsched.refusals import is_passing, translate
from rzsched.scripts import script

LEAST_VERSION = (6, 2)
PARCEL_BYTES = 1 << 15



class Write(NamedTuple):
    """Jobs for one partition: writes into the same one may be joined. Their ids are made when they are sent."""

    partition: Partition
    jobs: list[Prepared]


PlainStep = Call[Any] | Enqueue | Write
Step = PlainStep | Durably[PlainStep]


def route_of(step: Step) -> Argument:
    """Say which node of a cluster runs a step; see `Call.route`."""
    return step.routed_by if isinstance(step, Call) else step.partition.base


def settle_ids(step: Step) -> Step:
    """Make the ids that a step still lacks, so that it stays the same one however often it is sent."""
    if isinstance(step, Durably):
        return Durably(step.partition, settle_ids(step.step), step.wait)  # type: ignore[arg-type]
    return enqueue(step.partition, step.jobs) if isinstance(step, Write) else step


def as_call(step: Step) -> Call[Any]:
    if isinstance(step, Durably):
        step = step.step
    if isinstance(step, Write):
        step = enqueue(step.partition, step.jobs)
    return step.call() if isinstance(step, Enqueue) else step


def unfitness(info: str, where: str) -> ServerUnsuitable | None:
    """Say why a server can't be trusted with jobs, from its INFO; None when it can."""
    told = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    version = told.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < LEAST_VERSION:
        return ServerUnsuitable(f"redis at {where} is version {version}: rzsched needs 6.2 or newer, upgrade it")
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return ServerUnsuitable(
            f"redis at {where} has maxmemory-policy {policy} and may drop jobs: set it to noeviction "
            "(redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
        )
    return None


FITNESS_QUESTIONS = (pack_command(("INFO", "server")), pack_command(("INFO", "memory")))


def check_fitness(reply: Any, where: str) -> None:
    """Raise ServerUnsuitable where the answer to a fitness question says so, or the answer where it is an error."""
    if isinstance(reply, NoPermissionError) or (isinstance(reply, Exception) and "unknown command" in str(reply)):
        return  # a server that does not tell is given the benefit of the doubt
    if isinstance(reply, Exception):
        raise reply
    unfit = unfitness(reply.decode("utf-8", "replace"), where)
    if unfit is not None:
        raise unfit


class Exchange:
    """The calls that travel together, and what became of each."""

    def __init__(self, steps: Sequence[Step], where: str, *, asking: bool = False) -> None:
        self._asking = asking
        self._calls = [as_call(step) for step in steps]
        self._where = where
        self._open = list(range(len(self._calls)))
        self._barrier = Barrier({index: step for index, step in enumerate(steps) if isinstance(step, Durably)})
        self.outcomes: list[Any] = [None] * len(self._calls)
        """Each call's answer, or the exception that it raises."""
        self.refusal: Exception | None = None
        """Why calls did not run at the last try."""
        self.sent = False
        self.is_waited = False
        """Whether what ran waits for `vouch` alone, and may be judged by `attached`: who follows the server."""
        self.attached: Attached | None = None
        self._waited: Any = None
        # Behind a script that turns out not to be there a whole wait would be in vain.
        self.wants_scripts = self._barrier.stands
        self.redirects: dict[int, AskError] = {}
        """Which other node of a cluster is to be asked, by call; a MovedError is one of these."""

    @property
    def done(self) -> bool:
        return not self._open

    @property
    def refused(self) -> bool:
        """Say whether the server does not serve now; where it only lacks scripts, or others have the keys, it does."""
        return self.refusal is not None and not isinstance(self.refusal, NoScriptError | AskError)

    @property
    def open(self) -> list[int]:
        return list(self._open)

    def begin(self) -> None:
        """Prepare for one try at the server."""
        self.refusal, self.sent, self.is_waited = None, False, False
        self._barrier.begin()
        self.redirects.clear()

    def parcels(self) -> Iterator[tuple[list[int | None], bytes]]:
        """Pack what is to be sent now, each parcel with the calls that its replies belong to (None: to no call).

        Parcels are small, so that the server works on the first while the next is packed.
        """
        indexes: list[int | None] = []
        lines: list[bytes] = []
        size = 0
        for index, line in self._lines():
            indexes.append(index)
            lines.append(line)
            size += len(line)
            if size >= PARCEL_BYTES:
                yield indexes, b"".join(lines)
                indexes, lines, size = [], [], 0
        if lines:
            yield indexes, b"".join(lines)

    def _lines(self) -> Iterator[tuple[int | None, bytes]]:
        calls = list(self._open)
        if self.wants_scripts:
            self.wants_scripts = False
            for name in sorted({self._calls[index].script for index in calls} - {""}):
                yield None, pack_command(("SCRIPT", "LOAD", script(name).text))
        for index in calls:
            if self._asking:
                yield None, pack_command(("ASKING",))
            yield index, pack_command(self._calls[index].command())
        for sign, command in self._barrier.lines(calls):
            yield sign, pack_command(command)

    def take(self, index: int | None, reply: Any) -> None:
        """Settle a call by its reply; one that did not run stays open."""
        if index is None:
            return
        if index < 0:
            self._take_wait(index, reply)
        elif isinstance(reply, NoScriptError):
            self.wants_scripts, self.refusal = True, reply
        elif isinstance(reply, AskError):
            self.redirects[index] = reply
            self.refusal = self.refusal or reply  # what refused another call says more: it is no answer to that one
        elif isinstance(reply, Exception) and is_passing(reply):
            self.refusal = reply
        elif isinstance(reply, Exception):
            self._settle(index, translate(reply, self._where))
        else:
            try:
                answer = self._calls[index].read(reply)
            except Exception as error:  # a foreign value in a key; the other calls are not to blame
                return self._settle(index, error)
            if not self._barrier.hold(index, answer):
                self._settle(index, answer)

    def _take_wait(self, sign: int, reply: Any) -> None:
        """Settle the durable calls that ran; where the server could not wait out, they are open as before."""
        if sign == MARK:
            self._barrier.marked(reply)
        elif sign == ROLE:
            self.is_waited, self.attached = not self.refused, attached(reply)
        elif isinstance(reply, Exception) and is_passing(reply):
            self.refusal = reply
            self._drop_held(reply)
        else:
            self._waited = reply
            if not self._barrier.asks_role:
                self.vouch("")

    def vouch(self, lack: str) -> None:
        """Settle what waited, with what it lacks in spite of the wait."""
        self.is_waited = False
        for index, kept in self._barrier.met(self._waited, lack).items():
            self._settle(index, kept)

    def _drop_held(self, error: Exception) -> None:
        """Settle what ran and may not run twice without its wait; the rest runs again, with one."""
        for index, answer in self._barrier.answers.items():
            if not self._calls[index].repeatable:
                self._settle(index, self._unkept(answer, error))
        self._barrier.begin()

    def _unkept(self, answer: Any, error: Exception) -> Kept:
        return Kept(answer, f"the wait was cut off: {translate(error, self._where)}")

    def _settle(self, index: int, outcome: Any) -> None:
        self.outcomes[index] = outcome
        self._open.remove(index)

    def lost(self, error: Exception) -> None:
        """Fail what may have run and may not run twice, now that the answers are lost."""
        self._drop_held(error)
        if self.sent:
            self._fail([index for index in self._open if not self._calls[index].repeatable], error)

    def give_up(self, error: Exception) -> None:
        """Fail all that is still open."""
        self._fail(list(self._open), error)

    def _fail(self, indexes: list[int], error: Exception) -> None:
        for index in indexes:
            # It ran once, at least: the caller learns what it made.
            known = self._barrier.known
            kept = self._unkept(known[index], error) if index in known else translate(error, self._where)
            self._settle(index, kept)
