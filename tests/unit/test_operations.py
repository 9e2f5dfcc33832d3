"""The operations as pure plans, driven by hand: what they ask, in which steps, and what they make of the answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from rzsched import dead_letters, keys, operations
from rzsched.calls import Call, Enqueued, Page
from rzsched.config import ClientSettings
from rzsched.errors import JobNotFound, PayloadError
from rzsched.exchange import Write
from rzsched.job import JobId, JobSpec, prepare
from rzsched.layout import Layout
from rzsched.space import Plan, Space, together

PLACE = keys.partition("rz", "q", 0)


def space(**known: int) -> Space:
    return Space(ClientSettings(), dict(known))


def begin(plan: Plan[Any]) -> list[Any]:
    return next(plan)


def answer(plan: Plan[Any], *answers: Any) -> list[Any]:
    return plan.send(list(answers))


def end(plan: Plan[Any], *answers: Any) -> Any:
    with pytest.raises(StopIteration) as stop:
        plan.send(list(answers))
    return stop.value.value


def written(step: Any, fresh: bool = False) -> Enqueued:
    assert isinstance(step, Write)
    return Enqueued([JobId(f"{step.partition.name}.{job.payload.hex()}") for job in step.jobs], fresh)


def words(step: Call[Any]) -> tuple[Any, ...]:
    return tuple(step.args)


def test_the_first_job_of_a_queue_registers_it_before_it_is_written() -> None:
    fresh = space()
    plan = operations.schedule_job(fresh, "t", queue="q")
    (register,) = begin(plan)
    assert (register.script, words(register)) == ("grow", ("", "q", 1, ""))
    (tell,) = answer(plan, Layout(1, 1, is_new=True))
    assert words(tell)[:2] == ("PUBLISH", "rz:schedulers:regroup")
    (write,) = answer(plan, 0)
    assert (write.partition, len(write.jobs)) == (PLACE, 1)
    assert end(plan, written(write)).startswith("q.0.")
    assert fresh.partitions == {"q": 1}


def test_a_known_queue_costs_one_step() -> None:
    plan = operations.schedule_job(space(q=1), "t", queue="q")
    assert len(begin(plan)) == 1
    assert end(plan, Enqueued([JobId("q.0.x", False)], False)).created is False


def test_an_empty_partition_has_its_queue_registered_again() -> None:
    plan = operations.schedule_job(space(q=1), "t", queue="q")
    (write,) = begin(plan)
    (register,) = answer(plan, written(write, fresh=True))
    assert (register.script, words(register)) == ("grow", ("", "q", 1, ""))
    assert end(plan, Layout(1, 1)).startswith("q.0.")


def test_bad_arguments_are_refused_before_the_first_step() -> None:
    with pytest.raises(PayloadError):
        next(operations.schedule_job(space(), "t", args=(object(),)))
    plan = operations.schedule_many(space(), [JobSpec("t"), JobSpec("t", args=(object(),))])
    with pytest.raises(PayloadError):
        next(plan)


def drive_many(settings: ClientSettings, specs: Any, **known: int) -> tuple[list[list[Write]], list[str]]:
    plan = operations.schedule_many(Space(settings, dict(known)), specs)
    waves: list[list[Write]] = []
    try:
        steps: list[Any] = next(plan)
        while True:
            if steps:
                waves.append(steps)
            steps = plan.send([written(step) for step in steps])
    except StopIteration as stop:
        return waves, stop.value


def test_many_jobs_are_cut_into_chunks_and_keep_their_order() -> None:
    specs = [JobSpec("t", args=(index,), queue="ab"[index % 2]) for index in range(25)]
    waves, ids = drive_many(ClientSettings(chunk=4), specs, a=1, b=3)
    (wave,) = waves
    assert max(len(write.jobs) for write in wave) == 4
    assert sum(len(write.jobs) for write in wave) == 25
    payloads = [prepare(spec, "t", spec.args, None, 1 << 20).payload.hex() for spec in specs]
    assert [job_id.split(".")[2] for job_id in ids] == payloads


def test_a_chunk_is_bounded_in_bytes_but_never_empty() -> None:
    specs = [JobSpec("t", args=("x" * size,)) for size in (10, 2000, 10, 10, 900, 200)]
    waves, _ = drive_many(ClientSettings(chunk_bytes=1000), specs, default=1)
    assert [len(write.jobs) for wave in waves for write in wave] == [1, 1, 3, 1]


def test_an_endless_iterable_is_read_a_wave_at_a_time() -> None:
    taken = 0

    def endless() -> Iterator[JobSpec]:
        nonlocal taken
        while True:
            taken += 1
            yield JobSpec("t")

    plan = operations.schedule_many(Space(ClientSettings(chunk=10), {"default": 1}), endless())
    steps: list[Any] = next(plan)
    assert taken == 200
    plan.send([written(step) for step in steps])
    assert taken == 400
    plan.close()


def test_a_long_list_lets_others_have_their_turn() -> None:
    plan = operations.schedule_many(Space(ClientSettings(chunk=10), {"default": 1}), [JobSpec("t")] * 25)
    assert begin(plan) == []
    assert answer(plan) == []
    assert answer(plan) == []
    assert len(answer(plan)) == 3
    plan.close()


def test_equal_keys_go_to_one_partition_and_others_are_spread() -> None:
    known = space(q=8)
    job = prepare(JobSpec("t", queue="q", idempotency_key="k"), "t", (), None, 99)
    assert len({known.choose(job) for _ in range(50)}) == 1
    job = prepare(JobSpec("t", queue="q"), "t", (), None, 99)
    assert len({known.choose(job) for _ in range(200)}) == 8


def test_a_running_job_is_asked_to_stop_through_its_workers_channel() -> None:
    plan = operations.cancel_job(space(), "q.0.x")
    (cancel,) = begin(plan)
    assert (cancel.script, cancel.repeatable) == ("cancel", False)
    (publish,) = answer(plan, ("REQUESTED", "w1"))
    assert words(publish) == ("PUBLISH", "rz:worker:w1:cancel", "q.0.x")
    assert end(plan, 1) is True


@pytest.mark.parametrize(("status", "result"), [("CANCELLED", True), ("FINISHED", False)])
def test_what_a_cancel_gives(status: str, result: bool) -> None:
    plan = operations.cancel_job(space(), "q.0.x")
    begin(plan)
    assert end(plan, (status, "")) is result


def test_an_unknown_job_is_not_found() -> None:
    for plan, reply in ((operations.cancel_job(space(), "q.0.x"), ("NOT_FOUND", "")),
                        (operations.get_job_status(space(), "q.0.x"), None)):  # fmt: skip
        begin(plan)
        with pytest.raises(JobNotFound):
            plan.send([reply])


def test_replaying_all_goes_page_by_page_up_to_what_was_dead_at_the_start() -> None:
    plan = dead_letters.replay_dead(space(), "q")
    begin(plan)
    (newest,) = answer(plan, Layout(1, 1))
    assert words(newest)[0] == "XREVRANGE"
    (page,) = answer(plan, [(b"9-0", [])])
    assert words(page)[1:4] == ("-", "9-0", 500)
    (page,) = answer(plan, Page("5-0", [("q.0.a", "OK"), ("q.0.b", "q.0.holder")]))
    assert words(page)[1:3] == ("(5-0", "9-0")
    count = end(plan, Page("", [("q.0.c", "OK")]))
    assert (count, count.refused) == (2, {"q.0.b": "q.0.holder"})


def test_replaying_names_of_another_queue_is_not_found_before_anything_is_done() -> None:
    plan = dead_letters.replay_dead(space(), "q", ["q.0.a", "other.0.b"])
    begin(plan)
    with pytest.raises(JobNotFound):
        plan.send([Layout(1, 1)])


def test_dead_jobs_of_several_partitions_are_paged_without_a_gap() -> None:
    def entry(text: str) -> tuple[bytes, list[bytes]]:
        fields = [b"id", b"", b"task", b"t", b"error", b"", b"attempts", b"1"]
        return text.encode(), fields

    there = [["5-0", "5-2", "9-0"], ["5-1", "5-2", "10-0"]]
    listed: list[str] = []
    after = None
    for _ in range(4):
        plan = dead_letters.list_dead(space(), "q", 2, after=after)
        begin(plan)
        steps = answer(plan, Layout(2, 2))
        first = words(steps[0])[2]
        replies = []
        for number, step in enumerate(steps):
            behind = [text for text in there[number] if first == "-" or order(text) > order(first[1:])]
            replies.append(step.read([entry(text) for text in behind[:2]]))
        page = end(plan, *replies)
        listed += [job.entry for job in page]
        after = listed[-1]
    assert listed == ["5-0", "5-1", "5-2", "5-2", "9-0", "10-0"]


def order(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("-"))


def test_plans_side_by_side_share_their_trips_and_each_gets_its_own_answers() -> None:
    def count(name: str, steps: list[int]) -> Plan[str]:
        for number in steps:
            told = yield [(name, index) for index in range(number)]  # type: ignore[misc]
            assert told == [f"to {name} {index}" for index in range(number)]
        return name

    plans = [count("a", [1, 0, 2]), count("b", []), count("c", [2])]
    trips = []
    plan = together(plans)
    steps: list[Any] = next(plan)
    with pytest.raises(StopIteration) as stop:
        while True:
            trips.append(steps)
            steps = plan.send([f"to {name} {index}" for name, index in steps])
    assert trips == [[("a", 0), ("c", 0), ("c", 1)], [], [("a", 0), ("a", 1)]]
    assert stop.value.value == ["a", "b", "c"]
    with pytest.raises(StopIteration) as stop:
        next(together([]))
    assert stop.value.value == []
