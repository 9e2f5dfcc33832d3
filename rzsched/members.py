"""Members of a fleet: how a process is named, and how the live ones share the partitions without talking."""

import os
import secrets
import socket

from rzsched.keys import Partition


def new_member_id() -> str:
    """Name a worker or scheduler process: host, process, chance. Equal host names and pids do no harm."""
    host = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in socket.gethostname())
    return f"{host[:32] or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"


def share_of(me: str, members: list[str], places: list[Partition]) -> list[Partition]:
    """Deal the places out evenly among the members; every member computes the same."""
    order = sorted({*members, me})
    mine = order.index(me)
    ordered = sorted(places, key=lambda place: (place.queue, place.number))
    return [place for index, place in enumerate(ordered) if index % len(order) == mine]
