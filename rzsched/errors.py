"""The error tree.

Every error keeps its facts as attributes and as `args`, so that it survives pickling, and shows them
as one printable line, so that a log or a terminal can carry it whatever a job or a server said.
"""

from collections.abc import Sequence

_LINE_CHARS = 500
_NAME_CHARS = 80


def one_line(text: str, limit: int = _LINE_CHARS) -> str:
    """Squeeze a text into one printable line of at most `limit` characters."""
    # Cut first: the text may be a huge error of a handler's.
    line = " ".join(text[: limit * 4].split())
    if not line.isprintable():
        # Terminal control sequences and lone surrogates must not reach a terminal as they are.
        line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return line if len(line) <= limit else line[: limit - 3] + "..."


class RzschedError(Exception):
    """Be the root of all errors of this package."""

    def __str__(self) -> str:
        return one_line(self.describe())

    def describe(self) -> str:
        """Say what happened, in as many lines as the facts have."""
        return ": ".join(str(fact) for fact in self.args)


class JobNotFound(RzschedError):
    """Report a job id that no job has (any more)."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def describe(self) -> str:
        return f"no such job: {self.job_id}"


class CronNotFound(JobNotFound):
    """Report a schedule id that no schedule has."""

    def __init__(self, schedule_id: str) -> None:
        super().__init__(schedule_id)
        self.schedule_id = schedule_id

    def describe(self) -> str:
        return f"no such schedule: {self.schedule_id}"


class JobFailed(RzschedError):
    """Report to a waiting caller that a job ended DEAD, with its last error."""

    def __init__(self, job_id: str, error: str) -> None:
        super().__init__(job_id, error)
        self.job_id = job_id
        self.error = error

    def describe(self) -> str:
        return f"job {self.job_id} failed: {self.error or 'no reason given'}"


class JobCancelled(RzschedError):
    """Report to a waiting caller that a job was cancelled."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(job_id, reason)
        self.job_id = job_id
        self.reason = reason

    def describe(self) -> str:
        return f"job {self.job_id} was cancelled" + (f": {self.reason}" if self.reason else "")


class JobTimeout(RzschedError):
    """Report an attempt that ran past its timeout."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self.timeout_s = timeout_s

    def describe(self) -> str:
        return f"the attempt ran past its timeout of {self.timeout_s:g} s"


class PayloadError(RzschedError, ValueError):
    """Report a value that cannot be stored or read back, by its path; the value itself is never shown."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why


class PayloadTooLarge(RzschedError, ValueError):
    """Report a payload or result over the limit, both in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def describe(self) -> str:
        return f"the encoded value has {self.size} bytes; at most {self.limit} are allowed"


class InvalidCron(RzschedError, ValueError):
    """Report a cron expression that is malformed or can never be due."""

    def __init__(self, expression: str, why: str) -> None:
        super().__init__(expression, why)
        self.expression = expression
        self.why = why

    def describe(self) -> str:
        return f"invalid cron expression {_shown(self.expression)}: {self.why}"


class InvalidName(RzschedError, ValueError):
    """Report a name that is refused; `why` says what is allowed."""

    def __init__(self, kind: str, value: str, why: str) -> None:
        super().__init__(kind, value, why)
        self.kind = kind
        self.value = value
        self.why = why

    def describe(self) -> str:
        return f"invalid {self.kind} {_shown(self.value)}: {self.why}"


class UnknownTask(RzschedError):
    """Report a task name that is not registered here."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task

    def describe(self) -> str:
        return f"unknown task {_shown(self.task)}"


class ConnectionFailed(RzschedError):
    """Report a server that cannot be reached or stopped answering."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ServerUnsuitable(RzschedError):
    """Report a server that answers but cannot keep jobs safely."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotDurable(RzschedError):
    """Report that what a call wrote is in the server's memory, and was not made as durable as asked in time.

    The jobs stay: `job_ids` are those of the call, in its order (of a schedule, its own id), `job_id` is the first. The
    same call with the same idempotency key makes no second job and waits again.
    """

    def __init__(self, job_ids: Sequence[str], why: str) -> None:
        super().__init__(list(job_ids), why)
        self.job_ids = list(job_ids)
        self.why = why

    @property
    def job_id(self) -> str:
        return self.job_ids[0] if self.job_ids else ""

    def describe(self) -> str:
        more = f" and {len(self.job_ids) - 1} more" if len(self.job_ids) > 1 else ""
        return f"{self.job_id or 'the call'}{more}: written, but not durable in time: {self.why}"


def _shown(value: str) -> str:
    text = repr(value[: _NAME_CHARS * 2])
    return text if len(text) <= _NAME_CHARS else text[: _NAME_CHARS - 3] + "..."
