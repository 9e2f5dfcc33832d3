"""A cluster's redirects, among the other answers of one round."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from redis.exceptions import ClusterDownError, MovedError

from rzsched import calls, keys
from rzsched.errors import ConnectionFailed
from rzsched.rounds import MOST_REDIRECTS, Rounds
from rzsched.topology import Topology

NODE = "127.0.0.1:7000"
DOWN, MOVED = ClusterDownError("The cluster is down"), MovedError("1 127.0.0.1:7001")
ORDERS = list(itertools.permutations([DOWN, MOVED]))


def asked_once(answers: tuple[Any, ...], retry_s: float) -> Rounds:
    """Have as many steps go to one node, and take these answers."""
    topology = Topology([NODE])
    topology.take([[0, 16383, [b"127.0.0.1", 7000, b"name"]]], NODE)
    steps = [calls.measure(keys.partition("rz", queue, 0)) for queue in ("one", "other")]
    rounds = Rounds(steps, topology, "the cluster", retry_s)
    play(rounds, answers)
    return rounds


def play(rounds: Rounds, answers: tuple[Any, ...]) -> None:
    (parcel,) = rounds.parcels()
    parcel.exchange.begin()
    for index, answer in enumerate(answers):
        parcel.exchange.take(index, answer)
    rounds.take(parcel, None)


@pytest.mark.parametrize("answers", ORDERS)
def test_a_call_that_was_refused_beside_a_redirected_one_is_tried_again(answers: tuple[Any, ...]) -> None:
    """While a master is replaced, one node may say of one slot that it is served elsewhere, and of another nothing."""
    rounds = asked_once(answers, 1.0)
    assert rounds.delay() is not None, rounds.outcomes
    assert not rounds.done


@pytest.mark.parametrize("answers", ORDERS)
def test_a_redirect_is_followed_though_a_call_beside_it_is_given_up(answers: tuple[Any, ...]) -> None:
    rounds = asked_once(answers, 0.0)
    assert rounds.delay() == 0.0
    assert isinstance(rounds.outcomes[answers.index(DOWN)], ConnectionFailed)
    assert rounds.outcomes[answers.index(MOVED)] is None and not rounds.done
    (parcel,) = rounds.parcels()
    assert (parcel.node, parcel.indexes) == ("127.0.0.1:7001", [answers.index(MOVED)])


def test_redirects_in_a_circle_end() -> None:
    rounds = asked_once((DOWN, MOVED), 0.0)
    for _ in range(MOST_REDIRECTS + 1):
        if rounds.delay() is None:
            break
        play(rounds, (MOVED,))
    assert rounds.done
    assert all(isinstance(outcome, ConnectionFailed) for outcome in rounds.outcomes)
