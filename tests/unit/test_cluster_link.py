"""The picture of a cluster and the rounds of a call, without a cluster: what goes where, and what becomes of it."""

from typing import Any

import pytest
import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from rzsched import calls, keys
from rzsched.calls import ANYWHERE, Call, command
from rzsched.errors import ConnectionFailed, ServerUnsuitable
from rzsched.exchange import Exchange, Write, route_of
from rzsched.job import JobOptions, prepare
from rzsched.rounds import MOST_REDIRECTS, Rounds
from rzsched.topology import Topology, address_of, one_slot_of_each_master, slot_of
from rzsched.urls import check_url, cluster_addresses, describe_url, node_url

A, B, C = "10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"
RANGES = [[0, 5460, [b"10.0.0.1", 1, b"a"]], [5461, 10922, [b"10.0.0.2", 2, b"b"], [b"10.0.0.3", 3, b"c"]],
          [10923, 16383, [b"10.0.0.1", 1, b"a"]]]  # fmt: skip


def topology() -> Topology:
    found = Topology(["seed:9"])
    found.take(RANGES, "seed:9")
    return found


def at(slot: int, *, repeatable: bool = True) -> Call[Any]:
    return command("GET", "key", read=lambda answer: answer, repeatable=repeatable, route=slot)


def rounds(steps: list[Any], picture: Topology | None = None, retry_s: float = 1.0) -> Rounds:
    return Rounds(steps, picture or topology(), "somewhere", retry_s)


def answer(found: Rounds, *replies: Any) -> None:
    """Give the only parcel of a round its replies."""
    (parcel,) = found.parcels()
    for index, reply in enumerate(replies):
        parcel.exchange.take(index, reply)
    found.take(parcel, None)


# ---- URLs


def test_a_cluster_url_names_nodes_that_share_credentials_and_options() -> None:
    url = "redis+cluster://user:p%40ss@one,two:7001,[::1]:7002/?ssl_ca_path=x"
    assert cluster_addresses(url) == ["one:6379", "two:7001", "[::1]:7002"]
    assert node_url(url, "three:1") == "redis://user:p%40ss@three:1/?ssl_ca_path=x"
    assert node_url("rediss+cluster://h:1", "h:1") == "rediss://h:1/"
    assert describe_url(url) == "one:6379,two:7001,[::1]:7002"


@pytest.mark.parametrize("url", ["redis+cluster://a:1,b:2", "rediss+cluster://:secret@a/0", "redis+cluster://a:1/"])
def test_a_good_cluster_url_is_taken(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize("url", [
    "redis+cluster://", "redis+cluster://a:1,", "redis+cluster://a:x", "redis+cluster://a:0",
    "redis+cluster://a:1/3", "redis+cluster://a:1/?no_such_option=1", "redis+cluster://u:secret/x@a:1/",
    "redis+cluster://u:secret#x@a:1",
])  # fmt: skip
def test_a_bad_cluster_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


# ---- where things are


def test_all_keys_of_a_partition_are_routed_alike() -> None:
    place = keys.partition("rz", "q", 3)
    step = calls.measure(place)
    write = Write(place, [])
    plain = command("HGET", place.job("q.3.x"), "state", read=bytes)
    assert {slot_of(route_of(each)) for each in (step, write, plain)} == {slot_of(place.base)}
    assert route_of(calls.publish("channel", "word")) == ANYWHERE
    assert slot_of(77) == 77


def test_the_picture_is_as_the_node_told_it() -> None:
    found = topology()
    assert (found.owner(0), found.owner(6000), found.owner(16383)) == (A, B, A)
    assert not found.is_doubtful
    assert sorted(found.masters()) == [A, B]
    assert set(found.candidates()) == {A, B, C, "seed:9"}
    assert one_slot_of_each_master(RANGES) == [5461, 10923]


def test_a_picture_with_a_hole_is_doubtful() -> None:
    found = Topology(["seed:9"])
    assert found.is_doubtful
    found.take(RANGES[:2], "seed:9")
    assert found.is_doubtful
    assert found.owner(16383) is None


def test_who_did_not_answer_is_asked_last() -> None:
    found = topology()
    for node in (A, C, "seed:9"):
        found.suspect(node)
    assert found.candidates()[0] == B
    assert found.owner(ANYWHERE) == B
    assert found.is_doubtful
    found.take(RANGES, A)
    assert set(found.candidates()[:2]) == {A, B}


def test_a_node_that_does_not_know_its_host_is_where_it_was_asked() -> None:
    assert address_of(b"", 7, "10.0.0.9:1") == "10.0.0.9:7"
    assert address_of(None, 7, "10.0.0.9:1") == "10.0.0.9:7"
    assert address_of("::1", 7, "x:1") == "[::1]:7"


# ---- rounds


def test_steps_go_to_their_nodes_in_order_and_answers_come_back_in_theirs() -> None:
    found = rounds([at(0), at(6000), at(1), at(16383)])
    by_node = {parcel.node: parcel for parcel in found.parcels()}
    assert {node: parcel.indexes for node, parcel in by_node.items()} == {A: [0, 2, 3], B: [1]}
    for node, replies in ((A, ["a", "c", "d"]), (B, ["b"])):
        for index, reply in enumerate(replies):
            by_node[node].exchange.take(index, reply)
        found.take(by_node[node], None)
    assert found.done
    assert found.outcomes == ["a", "b", "c", "d"]


def test_what_may_run_anywhere_travels_with_the_others() -> None:
    anywhere = command("TIME", read=list, route=ANYWHERE)
    (parcel,) = rounds([anywhere, at(6000)]).parcels()
    assert (parcel.node, parcel.indexes) == (B, [0, 1])
    (alone,) = rounds([anywhere]).parcels()
    assert alone.node in {A, B}


def test_a_moved_step_goes_to_the_node_that_was_named_at_once() -> None:
    picture = topology()
    found = rounds([at(0)], picture)
    answer(found, MovedError("0 10.0.0.3:3"))
    assert found.delay() == 0.0
    assert picture.owner(0) == C
    assert picture.is_doubtful
    picture.take(RANGES, A)  # it has not heard of it yet
    (parcel,) = found.parcels()
    assert (parcel.node, parcel.asking) == (C, False)


def test_an_asked_step_says_so_and_the_picture_stays() -> None:
    picture = topology()
    found = rounds([at(0)], picture)
    answer(found, AskError("0 10.0.0.3:3"))
    assert found.delay() == 0.0
    assert picture.owner(0) == A
    (parcel,) = found.parcels()
    assert (parcel.node, parcel.asking) == (C, True)
    (sent,) = parcel.exchange.parcels()
    assert sent[0] == [None, 0]
    assert sent[1].index(b"ASKING") < sent[1].index(b"GET")
    parcel.exchange.take(0, TryAgainError("later"))
    found.take(parcel, None)
    assert found.delay()
    (parcel,) = found.parcels()
    assert (parcel.node, parcel.asking) == (A, False)  # one answer says nothing of the next try


def test_nodes_that_send_a_step_about_for_ever_are_given_time() -> None:
    found = rounds([at(0)])
    for _ in range(MOST_REDIRECTS):
        answer(found, MovedError("0 10.0.0.3:3"))
        assert found.delay() == 0.0
    answer(found, MovedError("0 10.0.0.3:3"))
    assert found.delay()


@pytest.mark.parametrize("reply", [TryAgainError("rehashing"), ClusterDownError("down")])
def test_a_refusal_that_passes_is_waited_for_by_who_is_patient(reply: Exception) -> None:
    patient, hasty = rounds([at(0)]), rounds([at(0)], retry_s=0)
    for found in (patient, hasty):
        answer(found, reply)
    assert patient.delay()
    assert hasty.delay() is None
    assert isinstance(hasty.outcomes[0], ConnectionFailed)


def test_what_was_lost_on_the_way_runs_again_only_where_it_may() -> None:
    picture = topology()
    found = rounds([at(0), at(1, repeatable=False), at(6000)], picture)
    parcels = {parcel.node: parcel for parcel in found.parcels()}
    for parcel in parcels.values():
        parcel.exchange.sent = True
    found.take(parcels[A], redis.ConnectionError("gone"))
    parcels[B].exchange.take(0, "b")
    found.take(parcels[B], None)
    assert found.delay()
    assert [parcel.indexes for parcel in found.parcels()] == [[0]]
    assert isinstance(found.outcomes[1], ConnectionFailed)
    assert found.outcomes[2] == "b"
    assert picture.masters()[-1] == A


def test_a_write_keeps_its_ids_wherever_it_is_sent() -> None:
    place = keys.partition("rz", "q", 0)
    job = prepare(JobOptions(queue="q"), "t", (), None, 100)
    found = rounds([Write(place, [job])])
    (first,) = found.parcels()
    before = b"".join(packed for _, packed in first.exchange.parcels())
    first.exchange.take(0, MovedError(f"{slot_of(place.base)} {C}"))
    found.take(first, None)
    (second,) = found.parcels()
    assert b"".join(packed for _, packed in second.exchange.parcels()) == before


def test_a_link_to_one_server_does_not_follow_a_redirect() -> None:
    exchange = Exchange([at(0)], "somewhere")
    exchange.take(0, MovedError("0 10.0.0.3:3"))
    assert isinstance(exchange.refusal, MovedError)
    exchange.give_up(exchange.refusal)
    assert isinstance(exchange.outcomes[0], ServerUnsuitable)
    assert "redis+cluster://" in str(exchange.outcomes[0])
