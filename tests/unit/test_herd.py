"""A herd is moved as fast as jobs are wanted, and no faster."""

from rzsched.calls import Promotion
from rzsched.herd import ENOUGH_READY, FEW, PAUSE_S, TURNS, Herd

BATCH = 100


def test_less_than_a_batch_is_no_herd() -> None:
    herd = Herd(BATCH)
    assert herd.looked(Promotion(BATCH - 1)) is None
    assert (herd.limit, herd.turns) == (BATCH, 1)


def test_while_all_that_was_moved_is_read_at_once_more_follows_at_once() -> None:
    herd = Herd(BATCH)
    assert herd.looked(Promotion(BATCH, unread=BATCH, left=5000)) == 0
    assert (herd.limit, herd.turns) == (BATCH, TURNS)
    assert herd.looked(Promotion(BATCH, unread=TURNS * BATCH, left=5000 - TURNS * BATCH)) == 0
    assert (herd.limit, herd.turns) == (BATCH, TURNS)


def test_while_nobody_is_under_way_all_is_moved_soon() -> None:
    herd = Herd(BATCH)
    pauses = {unread: herd.looked(Promotion(BATCH, unread=unread, left=5000 - unread))
              for unread in range(BATCH, ENOUGH_READY + 5 * BATCH, TURNS * BATCH)}
    assert pauses == {unread: PAUSE_S if unread > ENOUGH_READY else 0 for unread in pauses}
    assert (herd.limit, herd.turns) == (BATCH, TURNS)


def test_while_workers_have_enough_to_read_only_a_few_are_moved() -> None:
    herd = Herd(BATCH)
    herd.looked(Promotion(BATCH, unread=BATCH, left=5000))
    assert herd.looked(Promotion(BATCH, unread=3 * BATCH - 1, left=5000 - 2 * BATCH)) == PAUSE_S
    assert (herd.limit, herd.turns) == (FEW, 1)
    assert herd.looked(Promotion(FEW, unread=2 * BATCH, left=4800 - FEW)) == PAUSE_S
    assert herd.looked(Promotion(FEW, unread=FEW, left=4800 - 2 * FEW)) == 0
    assert (herd.limit, herd.turns) == (BATCH, TURNS)


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


def in_a_herd(batch: int) -> Herd:
    """Begin one whose workers help themselves."""
    herd = Herd(batch)
    herd.looked(Promotion(batch, unread=batch, left=5000))
    herd.looked(Promotion(batch, unread=batch, left=4000))
    return herd


def test_the_next_herd_begins_with_a_batch() -> None:
    herd = in_a_herd(BATCH)
    assert herd.limit == FEW
    assert herd.looked(Promotion(FEW - 1)) is None
    assert (herd.limit, herd.turns) == (BATCH, 1)
    assert herd.looked(Promotion(BATCH, unread=BATCH, left=1000)) == 0


def test_a_batch_smaller_than_a_few_stays_so() -> None:
    assert in_a_herd(3).limit == 3
