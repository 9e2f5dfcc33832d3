"""How a worker deals its free slots out among its partitions."""

from hypothesis import given
from hypothesis import strategies as st

from rzsched import keys
from rzsched.posts import MOST_CLAIMED, Post, share_slots


def posts(*weights: int) -> list[Post]:
    return [Post(keys.partition("rz", "q", number), weight) for number, weight in enumerate(weights)]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda weights: posts(*weights)),
    st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.integers(1, 300)), max_size=40),
)
def test_where_there_is_a_slot_somebody_gets_it(every: list[Post], turns: list[tuple[set[int], int]]) -> None:
    for chosen, free in turns:
        some = [post for number, post in enumerate(every) if number in chosen] or every
        shares = share_slots(some, free)
        assert 0 < sum(shares) <= free
        assert all(0 <= share <= MOST_CLAIMED for share in shares)


def test_over_many_turns_slots_go_by_weight() -> None:
    every = posts(1, 3)
    got = [sum(column) for column in zip(*(share_slots(every, 1) for _ in range(400)), strict=True)]
    assert got == [100, 300]


def test_without_a_slot_nobody_gets_one() -> None:
    assert share_slots(posts(1, 1), 0) == [0, 0]
    assert share_slots([], 5) == []


def test_those_who_had_their_slots_in_advance_get_one_where_nobody_else_asks() -> None:
    every = posts(1, 1, 1, 1)
    assert share_slots(every[:2], 1) == [1, 0]
    assert share_slots(every[2:], 1) == [1, 0]
    assert sum(share_slots([every[0], every[2]], 1)) == 1
