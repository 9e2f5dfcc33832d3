"""A herd is moved as fast as jobs are wanted, and no faster."""

from rzsched.calls import Promotion
from rzsched.herd import ENOUGH_READY, FEW, PAUSE_S, TURNS, Herd

BATCH = 100


def test_less_than_a_batch_is_no_herd() -> None:
    herd = Herd(BATCH)
    assert herd.looked(Promotion(BATCH - 1)) is None
    assert (herd.limit, herd.turns) == (BATCH, 1)


def test_while_all_that_was_moved_is_taken_at_once_more_follows_at_once() -> None:
    herd = Herd(BATCH)
    assert herd.looked(Promotion(BATCH, unread=BATCH, left=5000)) == 0
    assert (herd.limit, herd.turns) == (BATCH, TURNS)
    assert herd.looked(Promotion(BATCH, unread=TURNS * BATCH, left=5000 - TURNS * BATCH)) == 0
    assert (herd.limit, herd.turns) == (BATCH, TURNS)


def test_while_something_waits_unread_only_a_few_are_moved() -> None:
    herd = Herd(BATCH)
    assert herd.looked(Promotion(BATCH, unread=BATCH + 1, left=5000)) == PAUSE_S
    assert (herd.limit, herd.turns) == (FEW, 1)
    assert herd.looked(Promotion(FEW, unread=BATCH + FEW, left=5000 - FEW)) == PAUSE_S
    assert herd.limit == FEW


def test_while_workers_take_due_jobs_themselves_only_a_few_are_moved() -> None:
    herd = Herd(BATCH)
    herd.looked(Promotion(BATCH, unread=BATCH, left=5000))
    assert herd.looked(Promotion(BATCH, unread=TURNS * BATCH, left=4999 - TURNS * BATCH)) == PAUSE_S
    assert (herd.limit, herd.turns) == (FEW, 1)
    assert herd.looked(Promotion(FEW, unread=FEW, left=4500)) == PAUSE_S
    assert herd.looked(Promotion(FEW, unread=FEW, left=4500 - FEW)) == 0
    assert (herd.limit, herd.turns) == (BATCH, TURNS)


def test_where_priorities_are_in_use_all_is_moved_soon() -> None:
    herd = Herd(BATCH)
    assert herd.looked(Promotion(BATCH, unread=500, left=None)) == 0
    assert herd.looked(Promotion(BATCH, unread=ENOUGH_READY + 1, left=None)) == PAUSE_S
    assert (herd.limit, herd.turns) == (BATCH, TURNS)


def test_the_next_herd_begins_with_a_batch() -> None:
    herd = Herd(BATCH)
    herd.looked(Promotion(BATCH, unread=BATCH + 1, left=5000))
    assert herd.looked(Promotion(FEW - 1)) is None
    assert (herd.limit, herd.turns) == (BATCH, 1)
    assert herd.looked(Promotion(BATCH, unread=BATCH, left=4000)) == 0


def test_a_batch_smaller_than_a_few_stays_so() -> None:
    herd = Herd(3)
    herd.looked(Promotion(3, unread=9, left=5000))
    assert herd.limit == 3
