"""A cluster's redirects, among the other answers of one round."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from redis.exceptions import ClusterDownError, MovedError

from rzsched import calls, keys
from rzsched.rounds import Rounds
from rzsched.topology import Topology

NODE = "127.0.0.1:7000"
ANSWERS: list[Any] = [ClusterDownError("The cluster is down"), MovedError("1 127.0.0.1:7001")]


@pytest.mark.parametrize("answers", list(itertools.permutations(ANSWERS)))
def test_a_call_that_was_refused_beside_a_redirected_one_is_tried_again(answers: list[Any]) -> None:
    """While a master is replaced, one node may say of one slot that it is served elsewhere, and of another nothing."""
    topology = Topology([NODE])
    topology.take([[0, 16383, [b"127.0.0.1", 7000, b"name"]]], NODE)
    steps = [calls.measure(keys.partition("rz", queue, 0)) for queue in ("one", "other")]
    rounds = Rounds(steps, topology, "the cluster", 1.0)
    (parcel,) = rounds.parcels()
    parcel.exchange.begin()
    for index, answer in enumerate(answers):
        parcel.exchange.take(index, answer)
    rounds.take(parcel, None)
    assert rounds.delay() is not None, rounds.outcomes
    assert not rounds.done
