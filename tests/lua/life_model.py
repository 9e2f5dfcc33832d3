"""The life of a job as plain Python: what each verb must answer, and where it must leave each job."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rzsched.calls import Claimed

UNKNOWN_GRACE_MS = 30_000
ENDED = {"SUCCEEDED", "CANCELLED", "DEAD"}


@dataclass
class ModelJob:
    id: str
    key: str
    priority: int
    max_retries: int
    place: str = "ready"
    state: str = "PENDING"
    due_ms: int = 0
    attempts: int = 0
    fence: int = 0
    worker: str = ""
    entry: str = ""
    locked: bool = False
    cancel: bool = False
    unknown_since: int | None = None

    @property
    def order(self) -> tuple[int, ...]:
        """Give a pending job's place among its stream's entries."""
        return (self.priority, *(int(part) for part in self.entry[2:].split("-")))


@dataclass
class Model:
    """Every job there is, the order of those that are ready, and who holds which key."""

    now_ms: int
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    ready: list[list[ModelJob]] = field(default_factory=lambda: [[] for _ in range(10)])
    dead: list[ModelJob] = field(default_factory=list)
    holders: dict[str, str] = field(default_factory=dict)
    executed: set[str] = field(default_factory=set)

    def at(self, place: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.place == place]

    def pending(self) -> list[ModelJob]:
        return sorted((job for job in self.jobs.values() if job.place == "pending"), key=lambda job: job.order)

    def add(self, job: ModelJob, delay_ms: int) -> None:
        self.jobs[job.id] = job
        if job.key:
            self.holders[job.key] = job.id
        self.wait(job, "PENDING", delay_ms)

    def wait(self, job: ModelJob, state: str, delay_ms: int = 0) -> None:
        """Have a job wait: until its delay has passed, or in its ready stream behind all others."""
        self.leave(job)
        job.state, job.due_ms = state, self.now_ms + delay_ms
        if delay_ms > 0:
            job.place = "scheduled"
        else:
            job.place, job.state = "ready", "PENDING"
            self.ready[job.priority].append(job)

    def leave(self, job: ModelJob) -> None:
        job.locked = False
        if job.place == "ready" and job in self.ready[job.priority]:
            self.ready[job.priority].remove(job)
        if job.place == "dead":
            self.dead.remove(job)

    def end(self, job: ModelJob, state: str) -> None:
        self.leave(job)
        job.place, job.state = ("dead" if state == "DEAD" else "ended"), state
        if state == "DEAD":
            self.dead.append(job)
        if state != "SUCCEEDED" and self.holders.get(job.key) == job.id:
            del self.holders[job.key]

    def succeed(self, job: ModelJob) -> None:
        if job.key:
            self.executed.add(job.key)
            self.holders.setdefault(job.key, job.id)
        self.end(job, "SUCCEEDED")

    def due(self) -> list[ModelJob]:
        due = [job for job in self.at("scheduled") if job.due_ms <= self.now_ms]
        return sorted(due, key=lambda job: (job.due_ms, job.id))

    def promote(self) -> int:
        due = self.due()
        for job in due:
            job.place, job.state = "ready", "PENDING"
            self.ready[job.priority].append(job)
        return len(due)

    def read(self, limit: int, turn: str) -> list[ModelJob]:
        """Deliver ready jobs: one of the turn's priority (or the next that has jobs), then 0 first."""
        chosen: list[ModelJob] = []
        order = [job for jobs in self.ready for job in jobs]
        if turn and limit:
            turned = sorted(order, key=lambda job: (job.priority - int(turn)) % 10)
            chosen = turned[:1]
        chosen += [job for job in order if job not in chosen][: limit - len(chosen)]
        for job in chosen:
            self.ready[job.priority].remove(job)
            job.place = "pending"
        return chosen

    def take(self, limit: int, turn: str = "", delivered: Iterable[ModelJob] = ()) -> list[ModelJob]:
        """Choose what a claim runs: delivered jobs, then ready ones, then due ones. What ends unrun makes room."""
        first, last = list(delivered), list[ModelJob]()
        while True:
            first += self.read(limit - len(first) - len(last), turn)
            due = self.due()[: limit - len(first) - len(last)]
            for job in due:
                job.place, job.state = "pending", "PENDING"
            unrun = [job for job in (*first, *due) if self.ends_unrun(job)]
            first = [job for job in first if job not in unrun]
            last += [job for job in due if job not in unrun]
            turn = ""
            if not unrun:
                return first + last

    def ends_unrun(self, job: ModelJob) -> bool:
        if job.key in self.executed:
            self.end(job, "SUCCEEDED")
        elif job.cancel:
            self.end(job, "CANCELLED")
        return job.state in ENDED

    def claim(self, worker: str, expected: list[ModelJob], runs: list[Claimed]) -> None:
        """Hold a claim's answer against what must have been claimed."""
        assert [run.id for run in runs] == [job.id for job in expected]
        used = max((job.fence for job in self.jobs.values()), default=0)
        assert all(int(run.fence) > used for run in runs), "a fence was used before"
        assert len({run.fence for run in runs}) == len(runs), "a fence was used twice"
        for job, run in zip(expected, runs, strict=True):
            job.attempts += 1
            assert run.attempt == job.attempts
            job.fence = int(run.fence)
            job.place, job.state, job.worker, job.locked, job.entry = "pending", "RUNNING", worker, True, run.entry

    def give_back(self, job: ModelJob) -> None:
        if not self.ends_unrun(job):
            self.wait(job, job.state)

    def finish(self, worker: str, what: str, run: Claimed, delay_ms: int) -> str:
        """Settle a run of any age; give the note that must come back, '' for none."""
        job = self.jobs.get(run.id)
        if job is None or job.fence != int(run.fence) or (job.locked and job.worker != worker):
            return "STALE"
        if job.locked:
            return self._settle(job, what, delay_ms)
        if job.state not in {"PENDING", "RUNNING", "DEAD"}:
            return "REPEATED"
        if what != "SUCCEEDED":
            return "REPEATED" if job.state == "DEAD" else "STALE"
        self.succeed(job)
        return "LATE"

    def _settle(self, job: ModelJob, what: str, delay_ms: int) -> str:
        if what in {"RELEASED", "UNKNOWN"}:
            job.attempts -= 1
        if what == "UNKNOWN":
            job.unknown_since = self.now_ms if job.unknown_since is None else job.unknown_since
            if self.now_ms - job.unknown_since >= UNKNOWN_GRACE_MS:
                self.end(job, "DEAD")
                return "DEAD"
        settlers: dict[str, Callable[[], None]] = {
            "SUCCEEDED": lambda: self.succeed(job),
            "CANCELLED": lambda: self.end(job, "CANCELLED"),
            "DEAD": lambda: self.end(job, "DEAD"),
            "RETRY": lambda: self.wait(job, "FAILED", delay_ms),
            "RELEASED": lambda: self.wait(job, "PENDING", delay_ms),
            "UNKNOWN": lambda: self.wait(job, "PENDING", delay_ms),
        }
        if what == "RETRY":
            job.unknown_since = None
        settlers[what]()
        return ""

    def recover(self, worker: str) -> list[tuple[str, str, str]]:
        lost = [job for job in self.pending() if (job.worker == worker if worker else not job.locked)]
        return [(job.id, self._take_back(job), job.worker) for job in lost]

    def _take_back(self, job: ModelJob) -> str:
        if job.state != "RUNNING":
            self.wait(job, job.state)
            return "RETURNED"
        if job.cancel or job.attempts > job.max_retries:
            self.end(job, "CANCELLED" if job.cancel else "DEAD")
            return job.state
        self.wait(job, "PENDING")
        return "RETRY"

    def release(self, worker: str, kept: set[str]) -> list[str]:
        """Hand back all but the runs with these fences, of any age."""
        mine = [job for job in self.pending() if job.worker == worker]
        back = [job for job in mine if job.state != "RUNNING" or str(job.fence) not in kept]
        for job in back:
            job.attempts -= job.state == "RUNNING"
            self.wait(job, "PENDING")
        return [job.id for job in back]

    def cancel(self, job: ModelJob) -> tuple[str, str]:
        if job.id not in self.jobs:
            return "NOT_FOUND", ""
        if job.state in ENDED:
            return "FINISHED", job.state
        if job.locked:
            job.cancel = True
            return "REQUESTED", job.worker
        self.end(job, "CANCELLED")
        return "CANCELLED", ""

    def replay(self, job: ModelJob) -> str:
        if job.state != "DEAD" or job.id not in self.jobs:
            return "NOT_FOUND"
        if job.key in self.holders:
            return self.holders[job.key]
        if job.key:
            self.holders[job.key] = job.id
        job.attempts, job.cancel, job.unknown_since = 0, False, None
        self.wait(job, "PENDING")
        return "OK"

    def forget(self, job: ModelJob) -> str:
        """Purge a dead job."""
        if job not in self.dead:
            return "NOT_FOUND"
        self.dead.remove(job)
        del self.jobs[job.id]
        return "OK"
