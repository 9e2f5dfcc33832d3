"""`grow`: a queue has never fewer partitions than before, and its keys are dealt out as when it was made."""

import pytest

from rzsched import keys, layout
from rzsched.growth import configure
from rzsched.layout import Layout
from tests.states import Stage

REGISTRY = keys.queues("rz")


def grow(stage: Stage, partitions: int, keyed: int | None = None) -> tuple[str, Layout]:
    """Grow queue `n`; give the status as it came beside what was read of it."""
    call = layout.grow("rz", "n", partitions, keyed)
    status = ""

    def read(answer: list[bytes]) -> Layout:
        nonlocal status
        status = answer[0].decode()
        return call.read(answer)

    found = stage.run(type(call)(call.script, call.keys, call.args, read))
    return status, found


def test_a_queue_is_made_once(stage: Stage) -> None:
    assert grow(stage, 1) == ("NEW", Layout(1, 1, is_new=True))
    assert grow(stage, 1) == ("KNOWN", Layout(1, 1))
    assert stage.raw.hgetall(REGISTRY) == {b"q": b"1", b"n": b"1"}


def test_it_grows_and_never_shrinks(stage: Stage) -> None:
    grow(stage, 2)
    assert grow(stage, 5) == ("GROWN", Layout(5, 2))
    assert grow(stage, 9) == ("GROWN", Layout(9, 2))
    assert grow(stage, 3) == ("KNOWN", Layout(9, 2))
    assert stage.run(layout.look("rz", "n")) == Layout(9, 2)
    assert layout.read_registry(stage.raw.hgetall(REGISTRY)) == {"n": 9, "q": 1}


def test_who_remembers_tells_a_registry_that_forgot(stage: Stage) -> None:
    assert grow(stage, 9, 2) == ("NEW", Layout(9, 2, is_new=True))
    assert grow(stage, 1) == ("KNOWN", Layout(9, 2))
    assert stage.run(layout.look("rz", "unknown")) is None


def test_a_held_partition_starts_nothing_whatever_else_it_may(stage: Stage) -> None:
    stage.enqueue()
    stage.run(configure(stage.place, {"held": "1", "held_until": "+500"}, stage.now))
    assert stage.claim("w") == []
    limits = stage.raw.hgetall(stage.place.base + "limits")
    assert limits == {b"held": b"1", b"held_until": str(stage.now_ms + 500).encode()}
    stage.run(configure(stage.place, {"held": "", "held_until": ""}, stage.now))
    assert len(stage.claim("w")) == 1
    stage.check()


@pytest.mark.parametrize("answer", [
    {b"b": b"2", b"a": b"1", b"b/keyed": b"1"}, [b"b", b"2", b"b/keyed", b"1", b"a", b"1"],
])  # fmt: skip
def test_the_registry_is_read_in_either_form(answer: object) -> None:
    assert list(layout.read_registry(answer).items()) == [("a", 1), ("b", 2)]
