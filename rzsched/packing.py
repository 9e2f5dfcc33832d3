"""Commands as bytes."""

from collections.abc import Callable

import hiredis

from rzsched.calls import Argument

_pack: Callable[[tuple[Argument, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


def pack_command(words: tuple[Argument, ...]) -> bytes:
    """Pack a command as it travels.

    Numbers are spelled here: hiredis (up to 3.5) lets a signal's handler run while it spells one, and brings the
    process down where that raises, as Ctrl-C does.
    """
    return _pack(tuple([str(word) if type(word) is int else word for word in words]))
