"""An exchange settles a durable call by its wait, and never by a wait that did not cover it."""

import pytest
from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from rzsched import calls, keys
from rzsched.calls import Call
from rzsched.durability import MARK, ROLE, WAIT, Durably, Kept, Wait, fsyncs_always
from rzsched.errors import ConnectionFailed, NotDurable, ServerUnsuitable
from rzsched.exchange import Exchange

PLACE = keys.partition("rz", "q", 0)
REPLICATED, FSYNC, ALWAYS = Wait("WAIT", 1, 500), Wait("WAITAOF", 0, 500), Wait("CONFIG", 0, 500)
CONFIG = [b"appendonly", b"yes", b"appendfsync", b"always", b"no-appendfsync-on-rewrite", b"no"]
UNBLOCKED = ResponseError("UNBLOCKED force unblock, instance state changed (master -> replica?)")
MASTER = [b"master", 17, [[b"127.0.0.1", b"7001", b"17"], [b"127.0.0.1", b"7002", b"11"]]]
GONE = ConnectionError("gone")


def step(repeatable: bool = True) -> Call[str]:
    return calls.command("ECHO", "x", read=bytes.decode, repeatable=repeatable)


def exchange(*steps: Call[str], wait: Wait = REPLICATED) -> Exchange:
    made = Exchange([Durably(PLACE, each, wait) for each in steps], "here")
    made.begin()
    return made


def sent(made: Exchange) -> list[int | None]:
    made.sent = True
    return [index for indexes, _ in made.parcels() for index in indexes]


def answer(made: Exchange, *replies: object) -> None:
    asked = sent(made)
    told = [*replies, MASTER] if ROLE in asked else replies
    for index, reply in zip(asked, told, strict=True):
        made.take(index, reply)
    if made.is_waited:
        made.vouch("")


def waited(made: Exchange, count: int) -> None:
    made.take(WAIT, count)
    made.take(ROLE, MASTER)
    made.vouch("")


def test_the_mark_and_the_wait_travel_behind_the_calls() -> None:
    made = Exchange([step(), Durably(PLACE, step(), REPLICATED), Durably(PLACE, step(), REPLICATED)], "here")
    made.begin()
    assert sent(made) == [0, 1, 2, MARK, WAIT, ROLE]
    made.take(0, b"plain")
    made.take(1, b"one")
    assert made.outcomes[:2] == ["plain", None], "a call that waits is not settled before its wait"
    made.take(2, b"two")
    made.take(MARK, 7)
    made.take(WAIT, 1)
    assert not made.done, "nor before it is known who follows"
    made.take(ROLE, MASTER)
    assert made.attached == frozenset({("127.0.0.1", 7001), ("127.0.0.1", 7002)})
    made.vouch("")
    assert made.done
    assert made.outcomes == ["plain", Kept("one", ""), Kept("two", "")]


def test_what_is_said_against_a_met_wait_counts() -> None:
    made = exchange(step())
    for index, reply in zip(sent(made), (b"x", 1, 1, ResponseError("unknown command")), strict=True):
        made.take(index, reply)
    assert made.attached is None
    made.vouch("another has taken over")
    assert made.outcomes == [Kept("x", "another has taken over")]


def test_nothing_waits_where_nothing_is_durable() -> None:
    made = Exchange([step()], "here")
    assert sent(made) == [0]


def test_different_waits_do_not_travel_together() -> None:
    with pytest.raises(ValueError, match="together"):
        Exchange([Durably(PLACE, step(), REPLICATED), Durably(PLACE, step(), FSYNC)], "here")


@pytest.mark.parametrize(
    ("wait", "reply", "lack"),
    [
        (REPLICATED, 0, "0 of 1 replicas"), (REPLICATED, 2, ""), (FSYNC, [1, 0], ""), (FSYNC, [0, 3], "not on disk"),
        (FSYNC, ResponseError("WAITAOF cannot be used when numlocal is set but appendonly is disabled."), "disabled"),
        (ALWAYS, CONFIG, ""), (ALWAYS, [*CONFIG[:3], b"everysec", *CONFIG[4:]], "not always"),
    ],
)  # fmt: skip
def test_a_wait_that_is_not_met_says_what_lacks(wait: Wait, reply: object, lack: str) -> None:
    made = exchange(step(), wait=wait)
    answer(made, b"x", 1, reply)
    (kept,) = made.outcomes
    assert kept.answer == "x"
    assert lack in kept.lack
    assert bool(lack) == bool(kept.lack)


def test_a_refused_mark_is_no_wait() -> None:
    made = exchange(step())
    answer(made, b"x", OutOfMemoryError("command not allowed"), 1)
    assert "refused to write" in made.outcomes[0].lack


def test_a_wait_cut_off_by_a_demotion_is_sent_again_with_its_write() -> None:
    made = exchange(step(), step(repeatable=False))
    answer(made, b"x", b"y", 1, UNBLOCKED)
    assert made.refusal is UNBLOCKED
    assert "cut off" in made.outcomes[1].lack, "it ran, and may not run twice"
    made.begin()
    assert sent(made) == [0, MARK, WAIT, ROLE]
    made.take(0, b"again")
    made.take(MARK, 2)
    waited(made, 1)
    assert made.outcomes[0] == Kept("again", "")


def test_a_lost_answer_of_the_wait_leaves_the_write_open() -> None:
    made = exchange(step())
    assert sent(made) == [0, MARK, WAIT, ROLE]
    made.take(0, b"x")
    made.lost(GONE)
    assert not made.done
    made.begin()
    assert sent(made) == [0, MARK, WAIT, ROLE]
    made.lost(GONE)
    made.give_up(GONE)
    assert made.outcomes[0].answer == "x", "what it made once is still known"
    assert "can't reach" in made.outcomes[0].lack


def test_what_never_ran_fails_as_ever() -> None:
    made = exchange(step(), step(repeatable=False))
    sent(made)
    made.lost(GONE)
    made.give_up(GONE)
    assert [type(outcome) for outcome in made.outcomes] == [ConnectionFailed, ConnectionFailed]
    made = exchange(step(), step())
    answer(made, ResponseError("no"), b"y", 1, 1)
    assert isinstance(made.outcomes[0], ServerUnsuitable)
    assert made.outcomes[1] == Kept("y", "")


def test_a_script_that_is_not_there_is_loaded_first_and_covered_by_its_own_wait() -> None:
    script = calls.inspect(PLACE, "q.0.x")
    made = Exchange([Durably(PLACE, script, REPLICATED)], "here")
    made.begin()
    assert sent(made) == [None, 0, MARK, WAIT, ROLE]
    made.take(None, b"sha")
    made.take(0, NoScriptError("no"))
    made.take(MARK, 1)
    waited(made, 1)
    assert not made.done
    assert sent(made) == [None, 0, MARK, WAIT, ROLE]
    made.take(0, [b"NOT_FOUND"])
    made.take(MARK, 1)
    waited(made, 0)
    assert "0 of 1" in made.outcomes[0].lack


def test_configuration_is_read_in_either_form() -> None:
    assert fsyncs_always(CONFIG)
    assert fsyncs_always(dict(zip(CONFIG[::2], CONFIG[1::2], strict=True)))
    assert not fsyncs_always(CONFIG[:4])
    assert not fsyncs_always([])


def test_the_error_names_its_jobs() -> None:
    error = NotDurable(["a", "b"], "no replica")
    assert (error.job_id, error.job_ids) == ("a", ["a", "b"])
    assert str(error) == "a and 1 more: written, but not durable in time: no replica"
    assert NotDurable([], "no").job_id == ""
