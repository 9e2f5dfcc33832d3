"""The books of a chaos run: what was promised, what ran, and which fault explains each run too many. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

ENDS_PROCESS = frozenset({"kill_worker", "kill_child"})
ENDS_IN_ORDER = frozenset({"restart_worker", "restart_supervisor", "kill_supervisor"})
NO_EXCUSE = frozenset({"flush_scripts", "kill_clients", "destroy_groups", "kill_scheduler", "stop_scheduler",
                       "step_clock", "nap_worker", "move_slot"})  # fmt: skip
"""Faults that no job may run twice for: they take no lease away."""
SHARE_OF_LEASE = 0.5
"""A silence of that share may pass a lease: the last renewal may be a third old, and the next comes a moment later."""

CALM_BEFORE_S = 1.5
"""So long after a scheduler's death another one has taken over."""


@dataclass(frozen=True, slots=True)
class Happening:
    """A fault as it happened, by the monotonic clock. `pids` is whom it hit; None: the server, and so everybody."""

    kind: str
    began: float
    ended: float
    pids: frozenset[int] | None = None

    def hits(self, run: "Run") -> bool:
        return self.pids is None or run.pid in self.pids

    def excuses(self, run: "Run", until: float, lease_s: float) -> bool:
        """Say whether the job of this run may have been begun again, at `until`, because of this.

        A worker that is frozen between its claim and the start of the handler starts it last.
        """
        since = min(run.began, until)
        if self.kind in NO_EXCUSE or not self.hits(run) or self.began > until or self.ended < since:
            return False
        if self.kind in ENDS_PROCESS | ENDS_IN_ORDER:
            return True
        return min(self.ended, until) - self.began >= SHARE_OF_LEASE * lease_s


@dataclass(slots=True)
class Run:
    """One run of a job, as its handler told. `ended` is None where it never said so; `how` is `end` or `failed`."""

    job: str
    attempt: int
    fence: int
    pid: int
    began: float
    key: str = ""
    ended: float | None = None
    how: str = ""


def read_runs(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[Run]]:
    """Join the lines of the ledger into runs: by job, in the order of their fences."""
    runs: dict[tuple[str, int], Run] = {}
    later: list[Mapping[str, Any]] = []
    for line in lines:
        if line["event"] == "start":
            run = Run(line["job"], line["attempt"], line["fence"], line["pid"], line["at"], line["key"])
            runs[run.job, run.fence] = run
        else:
            later.append(line)
    for line in later:
        run = runs[line["job"], line["fence"]]
        run.ended, run.how = line["at"], line["event"]
    by_job: dict[str, list[Run]] = {}
    for run in sorted(runs.values(), key=lambda run: run.fence):
        by_job.setdefault(run.job, []).append(run)
    return by_job


@dataclass(frozen=True, slots=True)
class Books:
    """`accepted` and `cancelled` are what calls answered; `happened` is what went wrong meanwhile."""

    accepted: frozenset[str]
    cancelled: frozenset[str]
    runs: Mapping[str, Sequence[Run]]
    happened: Sequence[Happening]
    lease_s: float
    failures: int = 0
    dead: int = 0
    schedules: Mapping[str, int] = field(default_factory=dict)
    """The period of each schedule, in ms."""

    def figures(self) -> dict[str, Any]:
        again, doubles, unexplained = self._repeats()
        lost = sorted(self.accepted - self.cancelled - self._ended())
        occurrences, missing = self._occurrences()
        together = self._together()
        unanswered = [job for job in self.runs if job not in self.accepted and not self._schedule_of(job)]
        return {
            "accepted": len(self.accepted), "cancelled": len(self.cancelled),
            "ran": sum(job in self.runs for job in self.accepted),
            "ran_unanswered": len(unanswered), "calls_failed": self.failures,
            "lost": len(lost), "first_lost": lost[:5], "dead": self.dead,
            "ran_though_cancelled": len(self.cancelled & self.runs.keys()),
            "begun_again": dict(again), "ended_twice": dict(doubles),
            "unexplained": len(unexplained), "first_unexplained": unexplained[:5],
            "occurrences": occurrences, "occurrences_missing": missing,
            "together_in_spite_of_key": len(together), "first_together": together[:5],
            "longest_rerun_s": self._reruns(), "longest_rerun_in_calm_s": self._reruns(calm=True),
        }  # fmt: skip

    def _ended(self) -> set[str]:
        return {job for job, runs in self.runs.items() if any(run.how == "end" for run in runs)}

    # ---- more than once

    def _repeats(self) -> tuple[Counter[str], Counter[str], list[str]]:
        """Count by cause which jobs began again, and which ran to the end again; list what nothing explains."""
        again: Counter[str] = Counter()
        doubles: Counter[str] = Counter()
        unexplained: list[str] = []
        for job, runs in self.runs.items():
            for run, following in pairwise(runs):
                cause = self._cause(run, following)
                again[cause] += 1
                if run.how == "end":
                    doubles[cause] += 1
                if cause == "unexplained" or (run.how == "end" and cause == "retry"):
                    unexplained.append(f"{job}: {run} and then {following}")
        return again, doubles, unexplained

    def _cause(self, run: Run, following: Run) -> str:
        if run.how == "failed" and following.began > (run.ended or 0):
            return "retry"  # of attempts in between, if any, no handler began
        found = [each for each in self.happened if each.excuses(run, following.began, self.lease_s)]
        if not found:
            return "unexplained"
        in_order = [each for each in found if each.kind in ENDS_IN_ORDER]
        if in_order == found and following.attempt != run.attempt:
            return "unexplained"  # an end in order costs no attempt
        return max(found, key=lambda each: each.pids is not None).kind

    def _together(self) -> list[str]:
        """Find runs of one concurrency key that ran at the same time, where no lease was lost."""
        by_key: dict[str, list[Run]] = {}
        for runs in self.runs.values():
            for run in runs:
                if run.key:
                    by_key.setdefault(run.key, []).append(run)
        found = []
        for key, runs in by_key.items():
            running: Run | None = None
            for run in sorted(runs, key=lambda each: each.began):
                if running is not None and self._is_on(running, run.began) and self._excuse(running, run) is None:
                    found.append(f"{key}: {running} and {run}")
                running = run
        return found

    def _is_on(self, run: Run, at: float) -> bool:
        return run.ended is None or run.ended > at

    def _excuse(self, run: Run, following: Run) -> Happening | None:
        return next((each for each in self.happened if each.excuses(run, following.began, self.lease_s)), None)

    # ---- schedules

    def _schedule_of(self, job: str) -> str:
        name = job.split(".", 2)[2].rpartition("-")[0]
        return name if name in self.schedules else ""

    def _occurrences(self) -> tuple[dict[str, int], list[str]]:
        """Count what ran of each schedule, and name the instants between the first and the last that did not."""
        ended = self._ended()
        instants: dict[str, set[int]] = {name: set() for name in self.schedules}
        for job in self.runs:
            if (schedule := self._schedule_of(job)) and job in ended:
                instants[schedule].add(int(job.rpartition("-")[2]))
        missing = [
            f"{name} {instant}"
            for name, ran in instants.items() if ran
            for instant in range(min(ran), max(ran), self.schedules[name]) if instant not in ran
        ]  # fmt: skip
        return {name: len(ran) for name, ran in instants.items()}, missing

    # ---- how soon again

    def _reruns(self, *, calm: bool = False) -> dict[str, float]:
        """Give the longest time from a worker's death to the next run of a job that it ran, by who saw it die.

        `calm` leaves out what other trouble of that time held up.
        """
        longest: dict[str, float] = {}
        for death in self.happened:
            if death.kind not in ENDS_PROCESS:
                continue
            for runs in self.runs.values():
                for run, following in pairwise(runs):
                    if not self._died_in(run, death, following) or (calm and not self._calm(death, following.began)):
                        continue
                    waited_s = following.began - death.began
                    longest[death.kind] = round(max(waited_s, longest.get(death.kind, 0.0)), 3)
        return longest

    @staticmethod
    def _died_in(run: Run, death: Happening, following: Run) -> bool:
        return death.hits(run) and run.began <= death.began < following.began and not run.how

    def _calm(self, death: Happening, until: float) -> bool:
        return not any(
            each is not death and each.ended >= death.began - CALM_BEFORE_S and each.began <= until
            and each.kind not in {"step_clock", "nap_worker", "flush_scripts"}
            for each in self.happened
        )  # fmt: skip
