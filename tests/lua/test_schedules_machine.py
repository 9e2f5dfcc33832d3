"""Any order of verbs on schedules: no two runs of one overlap unasked, none that waits is forgotten, none doubles."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from rzsched import cron_calls, keys
from rzsched.calls import Claimed
from rzsched.firing import Firer
from rzsched.options import JobOptions
from rzsched.schedule import OVERLAPS, fingerprint
from rzsched.schedules import ScheduleSpec, define
from tests.lua.stage_machine import ANY, OUTCOMES, StageMachine, any_outcome, pick, run_machine
from tests.states import LEASE_MS, Stage, outcome

NAMES = st.sampled_from(["a", "b"])
WORKERS = st.sampled_from(["one", "two"])
BEGIN_MS = 2_000_000_000_000
"""What is due, and its jitter, must not depend on when the test runs: else a failure can't be played again."""
ENDED = {"SUCCEEDED", "CANCELLED", "DEAD", "gone"}
UNPLAYED: dict[str, Any] = {
    "cron": None, "tz": "UTC", "misfire_window": None, "start": None, "end": None, "dst_gap": "after",
    "dst_fold": "first",
}  # fmt: skip


def spec(name: str, every: int, overlap: str, misfire: str, jitter: int, key: bool) -> ScheduleSpec:
    options = JobOptions(queue="q", concurrency_key="shared" if key else None)
    return define("task", id=name, args=(), kwargs=None, options=options, payload_limit=1 << 20, every=every,
                  overlap=overlap, misfire=misfire, misfire_limit=3, jitter=jitter, **UNPLAYED)


class _Answers:
    """The link that a firer wants, over the stage's own."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def execute(self, steps: Any) -> list[Any]:
        return self._stage.link.execute(steps)


class Schedules(StageMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage.now_ms = BEGIN_MS
        self.begun: dict[tuple[str, str], str] = {}
        self.may_overlap: set[str] = set()

    # ---- what people do

    @rule(name=NAMES, every=st.sampled_from([2, 5]), overlap=st.sampled_from(OVERLAPS),
          misfire=st.sampled_from(["skip", "once", "all"]), jitter=st.sampled_from([0, 0, 1]), key=st.booleans())
    def register(self, name: str, every: int, overlap: str, misfire: str, jitter: int, key: bool) -> None:
        wanted = spec(name, every, overlap, misfire, jitter, key)
        fields = wanted.fields()
        before = self.stage.raw.zscore(self.stage.place.crons, name)
        status = self.stage.run(cron_calls.register(
            self.stage.place, keys.queues("rz"), name, fingerprint(fields), wanted.timing.next_after(self.stage.now_ms),
            "", [word for pair in fields.items() for word in pair], self.stage.now,
        ))  # fmt: skip
        if status == "UNCHANGED":
            assert self.stage.raw.zscore(self.stage.place.crons, name) == before
        if overlap == "allow" or status == "CHANGED":
            self.may_overlap.add(name)  # what the definition before allowed may still run

    @rule(name=NAMES)
    def unregister(self, name: str) -> None:
        self.stage.run(cron_calls.unregister(self.stage.place, name, now_ms=self.stage.now))
        if self.live(name):
            self.may_overlap.add(name)  # a run goes on, and one registered anew does not know it

    @rule(name=NAMES, resume=st.booleans())
    def pause(self, name: str, resume: bool) -> None:
        found = self.stage.raw.hget(self.stage.place.cron(name), "fingerprint")
        if not resume:
            self.stage.run(cron_calls.pause(self.stage.place, name, self.stage.now))
        elif found:
            at = self.stage.now_ms + 1000
            self.stage.run(cron_calls.resume(self.stage.place, name, found.decode(), at, self.stage.now))

    @rule(name=NAMES)
    def trigger(self, name: str) -> None:
        self.stage.run(cron_calls.trigger(self.stage.place, name, "triggered", [""], self.stage.now))

    @rule(name=NAMES, ago_s=st.integers(1, 30))
    def backfill(self, name: str, ago_s: int) -> None:
        instants = [self.stage.now_ms // 1000 * 1000 - each * 1000 for each in (ago_s + 5, ago_s)]
        self.stage.run(cron_calls.trigger(self.stage.place, name, "backfilled", instants, self.stage.now))

    @rule(number=ANY)
    def cancel(self, number: int) -> None:
        ids = sorted(self.jobs())
        if ids:
            self.stage.cancel(ids[number % len(ids)])

    @rule(name=NAMES)
    def a_foreign_hand_disarms(self, name: str) -> None:
        self.stage.raw.zrem(self.stage.place.crons, name)
        self.stage.run(cron_calls.rearm(self.stage.place, self.stage.now))

    @rule()
    def replay_all(self) -> None:
        self.stage.over_dead("replay")
        self.may_overlap |= {"a", "b"}  # a replayed occurrence is beside the plan

    # ---- what schedulers and workers do

    @rule(ms=st.sampled_from([1, 1000, 2000, 31_000]), grace_ms=st.sampled_from([1000, 60_000]), twice=st.booleans())
    def time_passes(self, ms: int, grace_ms: int, twice: bool) -> None:
        self.stage.now_ms += ms
        self.fire(grace_ms, twice)
        self.stage.promote()

    def fire(self, grace_ms: int, twice: bool) -> None:
        """Fire what is due; with `twice` another scheduler that read the same comes second."""
        for _ in range(100):
            firer = Firer(_Answers(self.stage), "rz", self.stage.place)
            coroutine = firer.due_calls(0, grace_ms, self.stage.now)
            try:
                coroutine.send(None)
            except StopIteration as stop:
                steps = stop.value
            if not steps:
                return
            self.stage.link.execute(steps)
            if twice:
                again = self.stage.link.execute(steps)
                assert {each.status for each in again} <= {"MOVED", "GONE", "PAUSED"}
        raise AssertionError("what is due never ends")

    @rule(worker=WORKERS, limit=st.integers(1, 3))
    def claim(self, worker: str, limit: int) -> None:
        self.took(worker, self.stage.claim(worker, limit))

    @precondition(lambda self: self.runs)
    @rule(number=ANY, what=OUTCOMES, delay_ms=st.sampled_from([0, 2000]), limit=st.integers(0, 1))
    def finish(self, number: int, what: str, delay_ms: int, limit: int) -> None:
        worker, run = pick(number, self.runs)
        self.took(worker, self.stage.finish(worker, any_outcome(what, run, delay_ms), limit=limit).claimed)

    @rule(worker=st.one_of(st.just(""), WORKERS), number=ANY)
    def crash(self, worker: str, number: int) -> None:
        running = [job_id for job_id, state in self.jobs().items() if state == "RUNNING"]
        if running and not worker:
            self.stage.lose_lease(running[number % len(running)])
        self.stage.recover(worker)

    def took(self, worker: str, claimed: list[Claimed]) -> None:
        for run in claimed:
            self.runs.append((worker, run))
            assert (run.id, run.fence) not in self.begun, "a fence is never given twice"
            self.begun[run.id, run.fence] = worker

    # ---- what must hold

    def jobs(self) -> dict[str, str]:
        prefix = self.stage.place.job("").encode()
        ids = [key.removeprefix(prefix).decode() for key in self.stage.raw.scan_iter(prefix + b"*")]
        return {job_id: self.stage.state(job_id) for job_id in ids}

    def live(self, name: str) -> list[str]:
        return [each for each, state in self.jobs().items() if f".{name}-" in each and state not in ENDED]

    @invariant()
    def every_job_and_schedule_is_in_one_place(self) -> None:
        self.stage.check()

    @invariant()
    def runs_of_one_schedule_do_not_overlap_unasked(self) -> None:
        for name in {"a", "b"} - self.may_overlap:
            assert len(self.live(name)) <= 1

    @invariant()
    def whatever_waits_has_somebody_whose_end_will_call_it(self) -> None:
        for name in ("a", "b"):
            if self.stage.raw.exists(f"{self.stage.place.base}held:{name}"):
                current = self.stage.raw.hget(self.stage.place.cron(name), "current")
                assert current is not None and self.stage.state(current.decode()) not in ENDED

    def drain(self) -> None:
        """Have all that was written or waits run to its end, with no schedule firing any more."""
        for name in ("a", "b"):
            self.stage.run(cron_calls.pause(self.stage.place, name, self.stage.now))
        held = sum(self.stage.raw.llen(f"{self.stage.place.base}held:{name}") for name in ("a", "b"))
        for _ in range(3 * (len(self.jobs()) + held) + 40):
            self.stage.now_ms += LEASE_MS
            for worker in ("one", "two"):
                self.stage.recover(worker)
            self.stage.promote()
            self.stage.finish("one", *(outcome("SUCCEEDED", run) for run in self.stage.claim("one", 100)))
        assert set(self.jobs().values()) <= ENDED
        for name in ("a", "b"):
            assert not self.stage.raw.exists(f"{self.stage.place.base}held:{name}")
        assert not self.stage.raw.exists(self.stage.place.base + "holding")


def test_schedules_live_as_they_should(redis_url: str) -> None:
    run_machine(Schedules, redis_url, 30)
