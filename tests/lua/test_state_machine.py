"""Any order of verbs, from any number of workers: each job stays in one place, and each answer is the predicted one."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from rzsched import calls
from rzsched.calls import Claimed
from tests.lua.life_model import UNKNOWN_GRACE_MS, Model, ModelJob
from tests.lua.stage_machine import ANY, ENDING, OUTCOMES, StageMachine, pick, run_machine
from tests.states import LEASE_MS, outcome

WORKERS = st.sampled_from(["a", "b", "ab"])
DELAYS_MS = st.sampled_from([0, 0, 2000, 20_000])
LIMITS = st.integers(0, 3)
TURNS = st.sampled_from(["", "", "0", "4", "9"])


class LifeOfJobs(StageMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.stage.now_ms)
        self.jobs: list[ModelJob] = []

    def claimed(self, worker: str, runs: list[Claimed]) -> None:
        self.runs += [(worker, run) for run in runs]

    @rule(key=st.sampled_from(["", "", "k", "j"]), delay_ms=DELAYS_MS, priority=st.sampled_from([5, 0, 9]),
          max_retries=st.integers(0, 2))  # fmt: skip
    def enqueue(self, key: str, delay_ms: int, priority: int, max_retries: int) -> None:
        options: dict[str, Any] = {"delay": delay_ms / 1000, "priority": priority, "max_retries": max_retries}
        (job_id,) = self.stage.enqueue_many([options | ({"idempotency_key": key} if key else {})]).ids
        holder = self.model.holders.get(key) if key else None
        assert job_id.created == (holder is None)
        if holder:
            assert job_id == holder
            return
        self.jobs.append(ModelJob(job_id, key, priority, max_retries))
        self.model.add(self.jobs[-1], delay_ms)

    @rule(ms=st.sampled_from([1, 2000, 10_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.stage.now_ms += ms
        self.model.now_ms += ms

    @rule()
    def promote(self) -> None:
        assert self.stage.promote().count == self.model.promote()

    @rule(worker=WORKERS, most=LIMITS)
    def promote_to_an_idle_worker(self, worker: str, most: int) -> None:
        promotion, runs = self.stage.promote_claim(worker, most)
        moved = self.model.promote()
        assert promotion.count == moved
        self.model.claim(worker, self.model.take(min(most, moved)), runs)
        self.claimed(worker, runs)

    @rule(worker=WORKERS, limit=LIMITS, turn=TURNS)
    def claim(self, worker: str, limit: int, turn: str) -> None:
        runs = self.stage.claim(worker, limit, turn)
        self.model.claim(worker, self.model.take(limit, turn), runs)
        self.claimed(worker, runs)

    @rule(worker=WORKERS)
    def deliver_without_claiming(self, worker: str) -> None:
        entries = self.stage.deliver(worker)
        for job, entry in zip(self.model.read(1000, ""), entries, strict=True):
            job.worker, job.entry = worker, entry

    @rule(worker=WORKERS, limit=LIMITS, number=ANY)
    def claim_delivered(self, worker: str, limit: int, number: int) -> None:
        """Claim what was delivered to anybody: only the worker's own counts, and no more than it has room for."""
        pending = self.model.pending()
        runs = self.stage.claim(worker, limit, delivered=[job.entry for job in pending])
        mine = [job for job in pending if job.worker == worker]
        taken, over = mine[:limit], mine[limit:]
        for job in over:
            if job.state != "RUNNING":
                self.model.give_back(job)
        delivered = [job for job in taken if job.state != "RUNNING"]
        self.model.claim(worker, self.model.take(limit, delivered=delivered), runs)
        self.claimed(worker, runs)

    @precondition(lambda self: self.runs)
    @rule(number=ANY, what=OUTCOMES, delay_ms=DELAYS_MS, limit=st.integers(0, 1), times=st.sampled_from([1, 1, 2]))
    def finish(self, number: int, what: str, delay_ms: int, limit: int, times: int) -> None:
        """Finish any run there ever was, in time, late or stale; the same call may arrive twice."""
        worker, run = pick(number, self.runs)
        job = next(job for job in self.jobs if job.id == run.id)
        if what == "RETRY" and run.attempt > job.max_retries:
            what = "DEAD"
        b = "3600000" if what in ENDING else str(delay_ms)
        c = str(UNKNOWN_GRACE_MS) if what == "UNKNOWN" else job.key if what in ENDING else ""
        sent = outcome(what, run, "", b, c)
        for _ in range(times):
            finished = self.stage.finish(worker, sent, limit=limit)
            note = self.model.finish(worker, what, run, delay_ms)
            assert finished.notes == ({run.id: note} if note else {})
            self.model.claim(worker, self.model.take(limit), finished.claimed)
            self.claimed(worker, finished.claimed)

    @precondition(lambda self: any(job.locked for job in self.jobs))
    @rule(number=ANY)
    def a_lease_runs_out(self, number: int) -> None:
        job = pick(number, [job for job in self.jobs if job.locked])
        self.stage.lose_lease(job.id)
        job.locked = False

    @rule(worker=st.one_of(st.just(""), WORKERS))
    def recover(self, worker: str) -> None:
        assert self.stage.recover(worker) == self.model.recover(worker)

    @rule(worker=WORKERS, number=ANY, keep=st.booleans(), leave=st.booleans())
    def release(self, worker: str, number: int, keep: bool, leave: bool) -> None:
        kept = {pick(number, self.runs)[1].fence} if keep and self.runs else set()
        assert self.stage.release(worker, sorted(kept), leave=leave) == self.model.release(worker, kept)

    @precondition(lambda self: self.runs)
    @rule(worker=WORKERS)
    def renew(self, worker: str) -> None:
        """Renew runs of any age, several of the same job among them."""
        runs = [run for owner, run in self.runs if owner == worker]
        rows = [(run.id, run.fence, run.entry, "") for run in runs]
        told = self.stage.run(calls.renew(self.stage.place, worker, LEASE_MS, rows, self.stage.now))
        expected = {}
        for run in runs:
            job = self.model.jobs.get(run.id)
            if job is None or not job.locked or job.fence != int(run.fence):
                expected[run.fence] = "LOST"
            elif job.cancel:
                expected[run.fence] = "CANCELLED"
        assert told == expected

    @precondition(lambda self: self.jobs)
    @rule(number=ANY)
    def cancel(self, number: int) -> None:
        job = pick(number, self.jobs)
        assert self.stage.cancel(job.id) == self.model.cancel(job)

    @precondition(lambda self: self.jobs)
    @rule(number=ANY)
    def replay_one(self, number: int) -> None:
        job = pick(number, self.model.dead or self.jobs)
        assert self.stage.over_dead("replay", [job.id]).results == [(job.id, self.model.replay(job))]

    @precondition(lambda self: self.model.dead)
    @rule()
    def replay_all(self) -> None:
        expected = [(job.id, self.model.replay(job)) for job in list(self.model.dead)]
        assert self.stage.over_dead("replay").results == expected

    @precondition(lambda self: self.jobs)
    @rule(number=ANY)
    def purge_one(self, number: int) -> None:
        job = pick(number, self.model.dead or self.jobs)
        assert self.stage.over_dead("purge", [job.id]).results == [(job.id, self.model.forget(job))]

    @rule(limit=st.sampled_from([3, 1]))
    def prune(self, limit: int) -> None:
        over = self.model.dead[: max(len(self.model.dead) - limit, 0)]
        assert self.stage.run(calls.prune(self.stage.place, 0.001, limit, self.stage.now))[1] == len(over)
        for job in over:
            self.model.forget(job)

    @invariant()
    def every_job_is_in_one_place_and_where_the_model_says(self) -> None:
        counts = self.stage.check().counts
        pending = self.model.at("pending")
        running = sum(job.state == "RUNNING" for job in pending)
        expected = [len(self.model.at(place)) for place in ("scheduled", "ready", "dead", "ended")]
        assert [counts.scheduled, counts.ready, counts.dead, counts.ended] == expected
        assert (counts.running, counts.delivered, counts.foreign) == (running, len(pending) - running, 0)

    @invariant()
    def every_job_tells_its_state_and_attempts(self) -> None:
        known = list(self.model.jobs.values())
        told = self.stage.link.execute([calls.inspect(self.stage.place, job.id, self.stage.now) for job in known])
        assert [(status.state, status.attempts) for status in told] == [(job.state, job.attempts) for job in known]


def test_jobs_live_as_the_model_says(redis_url: str) -> None:
    run_machine(LifeOfJobs, redis_url, 100)
