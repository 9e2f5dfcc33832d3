"""Any order of verbs under limits: never too many at once, every job in one place, nothing that waits forgotten."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from rzsched.growth import configure
from tests.lua.stage_machine import ANY, OUTCOMES, StageMachine, any_outcome, pick, run_machine
from tests.states import LEASE_MS, outcome

WORKERS = st.sampled_from(["a", "b", "ab"])
KEYS = st.sampled_from(["", "one", "one", "two"])
LIMITS = {"one": 1, "two": 2}


class LimitedJobs(StageMachine):
    def __init__(self) -> None:
        super().__init__()
        self.key_of: dict[str, str] = {}
        self.concurrency = 0

    @rule(key=KEYS, delay_s=st.sampled_from([0, 0, 2]), priority=st.sampled_from([5, 0]), expires=st.booleans())
    def enqueue(self, key: str, delay_s: int, priority: int, expires: bool) -> None:
        options: dict[str, Any] = {"delay": delay_s, "priority": priority, "expires": 20 if expires else None}
        if key:
            options |= {"concurrency_key": key, "concurrency_limit": LIMITS[key]}
        self.key_of[self.stage.enqueue(**options)] = key

    @rule(ms=st.sampled_from([1, 2000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.stage.now_ms += ms
        self.stage.promote()

    @rule(worker=WORKERS, most=st.integers(0, 2))
    def time_passes_at_an_idle_worker(self, worker: str, most: int) -> None:
        self.stage.now_ms += 2000
        self.runs += [(worker, run) for run in self.stage.promote_claim(worker, most)[1]]

    @rule(limit=st.integers(0, 2))
    def configure(self, limit: int) -> None:
        self.stage.run(configure(self.stage.place, {"concurrency": str(limit or "")}, self.stage.now))
        # What runs beyond a new limit may end in peace.
        self.concurrency = max(limit, len(self.running())) if limit else 0

    @rule(worker=WORKERS, limit=st.integers(0, 3), deliver=st.booleans())
    def claim(self, worker: str, limit: int, deliver: bool) -> None:
        delivered = self.stage.deliver(worker, 1) if deliver else []
        self.runs += [(worker, run) for run in self.stage.claim(worker, limit, delivered=delivered)]

    @rule(worker=WORKERS)
    def deliver_without_claiming(self, worker: str) -> None:
        self.stage.deliver(worker, 1)

    @precondition(lambda self: self.runs)
    @rule(number=ANY, what=OUTCOMES, delay_ms=st.sampled_from([0, 2000]), limit=st.integers(0, 1))
    def finish(self, number: int, what: str, delay_ms: int, limit: int) -> None:
        """Finish any run there ever was, in time, late or stale."""
        worker, run = pick(number, self.runs)
        finished = self.stage.finish(worker, any_outcome(what, run, delay_ms), limit=limit)
        self.runs += [(worker, claimed) for claimed in finished.claimed]

    @rule(worker=st.one_of(st.just(""), WORKERS), number=ANY)
    def crash(self, worker: str, number: int) -> None:
        running = self.running()
        if running and not worker:
            self.stage.lose_lease(running[number % len(running)])
        self.stage.recover(worker)

    @rule(worker=WORKERS, number=ANY, keep=st.booleans())
    def release(self, worker: str, number: int, keep: bool) -> None:
        self.stage.release(worker, [self.runs[number % len(self.runs)][1].fence] if keep and self.runs else [])

    @precondition(lambda self: self.key_of)
    @rule(number=ANY)
    def cancel(self, number: int) -> None:
        ids = sorted(self.key_of)
        self.stage.cancel(ids[number % len(ids)])

    @rule()
    def replay_all(self) -> None:
        self.stage.over_dead("replay")

    def running(self) -> list[str]:
        return [job_id for job_id in sorted(self.key_of) if self.stage.state(job_id) == "RUNNING"]

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        self.stage.check()

    @invariant()
    def no_more_run_than_may(self) -> None:
        running = self.running()
        for key, limit in LIMITS.items():
            assert sum(self.key_of[job_id] == key for job_id in running) <= limit
        if self.concurrency:
            assert len(running) <= self.concurrency

    @invariant()
    def whoever_is_parked_will_be_called(self) -> None:
        for key, limit in LIMITS.items():
            if self.stage.raw.exists(f"rz:{{q.0}}:parked:{key}"):
                assert self.stage.raw.zcard(f"rz:{{q.0}}:holders:{key}") == limit

    def drain(self) -> None:
        """Have every job end: none is left behind in a corner."""
        for _ in range(3 * len(self.key_of) + 3):
            self.stage.now_ms += LEASE_MS
            for worker in ("a", "b", "ab"):
                self.stage.recover(worker)
            self.stage.promote()
            self.stage.finish("a", *(outcome("SUCCEEDED", run) for run in self.stage.claim("a", 100)))
        ended = {self.stage.state(job_id) for job_id in self.key_of}
        assert ended <= {"SUCCEEDED", "CANCELLED", "DEAD", "gone"}
        left = {key.decode() for key in self.stage.raw.scan_iter("rz:{q.0}:*")}
        assert not {key for key in left if ":holders:" in key or ":parked:" in key}
        assert not {key for key in left if key.endswith((":holding", ":running"))}
        assert int(self.stage.raw.hget("rz:{q.0}:stats", "parked") or 0) == 0


def test_jobs_under_limits_live_within_them(redis_url: str) -> None:
    run_machine(LimitedJobs, redis_url, 60)
