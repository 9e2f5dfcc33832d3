"""What the errors of a server, and of the way to it, mean: for a call, and for whoever reads of it."""

import copy

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from rzsched.errors import ConnectionFailed, RzschedError, ServerUnsuitable, one_line
from rzsched.handshakes import tls_trouble

TRANSPORT = (redis.ConnectionError, redis.TimeoutError, OSError, EOFError)
"""What redis-py and asyncio raise when the way to the server is at fault."""
FOREIGN = (redis.RedisError, OSError, EOFError)
"""All that redis-py and asyncio raise."""
IN_BAND = (ResponseError, AuthenticationError, BusyLoadingError)
"""What is raised for a reply that was read whole."""
_PASSING = (BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError)
_PASSING_STARTS = ("UNBLOCKED ", "BUSY ", "MASTERDOWN ", "MISCONF ", "NOREPLICAS ")
_PASSING_SIGNS = ("-READONLY ", "-MASTERDOWN ", "-LOADING ", "-MISCONF ", "-NOREPLICAS ")
_NO_RIGHT = ("The user executing the script can't", "ACL failure in script")
_NO_AUTH = ("NOAUTH", "WRONGPASS", "invalid username-password", "invalid password", "Authentication required")


class CredentialsRefused(ConnectionFailed):
    """Report that the server is there and accepts not: the name or password, a command of that user, a certificate."""


class OutOfMemory(ServerUnsuitable):
    """Report that the server's memory is full: it takes nothing new until workers have freed some, or it gets more."""


def is_passing(error: Exception) -> bool:
    """Say whether the server refused a call, unrun, for a reason that will be over soon."""
    # Inside a script Redis 6.2 wraps the error of a command into one of its own.
    text = str(error)
    return (isinstance(error, _PASSING) or text.startswith(_PASSING_STARTS)
            or any(sign in text for sign in _PASSING_SIGNS))


def translate(error: Exception, where: str) -> RzschedError:
    """Say in one line what went wrong with the server and what to do; never shows a password."""
    text = str(error)
    if isinstance(error, RzschedError):
        return error
    if isinstance(error, AuthenticationError | AuthorizationError) or any(sign in text for sign in _NO_AUTH):
        return CredentialsRefused(f"redis at {where} refused the user name or password: check the server URL")
    if isinstance(error, NoPermissionError) or any(sign in text for sign in _NO_RIGHT):
        reason = one_line(text.partition(" script: ")[0], 120)
        return CredentialsRefused(
            f"redis at {where} does not permit this user a command: {reason}: give it the rights in rzsched's README, "
            "by ACL SETUSER"
        )
    if "MISCONF " in text:
        return ConnectionFailed(
            f"redis at {where} can't save its data to disk and refuses writes (MISCONF): look at its log and the "
            "free space of its disk"
        )
    if "NOREPLICAS " in text:
        return ConnectionFailed(
            f"redis at {where} refuses writes, its replicas are fewer than min-replicas-to-write: look after them"
        )
    if isinstance(error, NoScriptError) or is_passing(error):
        return ConnectionFailed(f"redis at {where} can't serve yet: {one_line(text, 120)}")
    if isinstance(error, TRANSPORT):
        trouble = "" if where.startswith(("unix:", "embedded:")) else tls_trouble(text)
        if trouble:
            return CredentialsRefused(f"can't speak TLS with redis at {where}: {trouble}")
        reason = one_line(text, 160) or type(error).__name__
        return ConnectionFailed(f"can't reach redis at {where} ({reason}): is the server running, is the URL right?")
    if isinstance(error, AskError | ClusterCrossSlotError):
        return ServerUnsuitable(f"redis at {where} is a node of a cluster: use a redis+cluster:// URL")
    if isinstance(error, OutOfMemoryError) or "OOM command not allowed" in text:
        return OutOfMemory(
            f"redis at {where} is out of memory (maxmemory) and refused the write: raise maxmemory, or let workers "
            "finish what waits"
        )
    return ServerUnsuitable(f"redis at {where} refused a command: {one_line(text, 200)}")


def own_copy(error: Exception) -> Exception:
    """Copy an error for one of several callers: each raises its own, so that no traceback grows with all of them."""
    return copy.copy(error) if isinstance(error, RzschedError) else error
