"""Settings, checked when they are built; nothing below the edge reads the environment."""

import math
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Literal, get_args

from rzsched.names import check_namespace

Seconds = int | float | timedelta
Durability = Literal["memory", "replicated", "fsync"]
DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_NAMESPACE = "rz"


def seconds(value: object, what: str) -> float:
    """Turn seconds or a timedelta into seconds; refuse anything else, and what is not finite."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} must be seconds (int or float) or a timedelta, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{what} must be a finite number of seconds, not {str(value)[:40]}")
    return number


def check_durability(value: object) -> Durability:
    """Return a level of durability, or raise ValueError."""
    for level in get_args(Durability):
        if value == level:
            return level  # type: ignore[no-any-return]
    raise ValueError(f"durability must be one of {', '.join(get_args(Durability))}, not {str(value)[:40]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a producer may set; sizes are bytes, times are seconds.

    `durability` holds for the calls that don't say their own. `replicated` means that `replicas` replicas have the
    write, `fsync` that it is in the append-only file on disk; a call waits for that `durability_timeout_s`, or nine
    tenths of `command_timeout_s` if that is less. A replica that isn't connected may come back in that time. Any
    replica may be made the master: only what all of them have is safe from that.
    Without `check_server` a server is used that may not be fit for jobs: see `rzsched doctor`.
    """

    namespace: str = DEFAULT_NAMESPACE
    payload_limit: int = 1 << 20
    chunk: int = 250
    chunk_bytes: int = 8 << 20
    connect_timeout_s: float = 3.0
    command_timeout_s: float = 15.0
    durability: Durability = "memory"
    replicas: int = 1
    durability_timeout_s: float = 5.0
    check_server: bool = True

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        check_durability(self.durability)
        if type(self.replicas) is not int:
            raise TypeError(f"replicas must be an int, not {type(self.replicas).__name__}")
        _check_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What an operator may set for a worker; times are seconds.

    `lease_s` is how long a silent worker keeps its jobs. `unknown_grace_s` is how long a job whose task no
    worker here knows is handed on before it counts as dead; `unknown_delay_s` how long it waits in between.
    """

    queues: tuple[tuple[str, int], ...] = (("default", 1),)
    concurrency: int = 100
    lease_s: float = 15.0
    shutdown_timeout_s: float = 25.0
    burst: bool = False
    scheduler: bool = True
    wait_for_server: bool = True
    unknown_grace_s: float = 30.0
    unknown_delay_s: float = 2.0
    error_limit: int = 8192

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.lease_s < 1:
            raise ValueError(f"lease must be at least 1 second, not {self.lease_s}")
        if not self.queues:
            raise ValueError("name at least one queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """What an operator may set for a scheduler; times are seconds.

    `queues` None means every queue there is. `idle_s` bounds how long a scheduler sleeps, and with it how
    late a dead worker's lease or a lost wake-up is noticed.
    """

    queues: tuple[str, ...] | None = None
    lease_s: float = 1.5
    batch: int = 100
    idle_s: float = 0.5
    default_max_retries: int = 3
    consumer_idle_s: float = 30.0
    dead_limit: int = 100_000

    def __post_init__(self) -> None:
        _check_positive(self)


_MAY_BE_ZERO = {"shutdown_timeout_s", "unknown_grace_s", "unknown_delay_s", "default_max_retries"}


def _check_positive(settings: "ClientSettings | WorkerSettings | SchedulerSettings") -> None:
    for field in fields(settings):
        value = getattr(settings, field.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        may_be_zero = field.name in _MAY_BE_ZERO and value == 0
        if is_number and not may_be_zero and not 0 < value < math.inf:
            raise ValueError(f"{field.name} must be a positive number, not {value}")
