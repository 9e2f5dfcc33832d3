"""Hold what producers were promised against what ran, by ledgers outside Redis and by each job's status."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rzsched import State


@dataclass(frozen=True, slots=True)
class Books:
    """`accepted` and `cancelled` are what calls answered, `runs` how often each job ran, `states` how each ended."""

    accepted: frozenset[str]
    cancelled: frozenset[str]
    runs: Mapping[str, int]
    states: Mapping[str, State | None]

    @classmethod
    def of(cls, accepted: Iterable[str], cancelled: Iterable[str], runs: Iterable[str],
           states: Mapping[str, State | None]) -> "Books":
        return cls(frozenset(accepted), frozenset(cancelled), Counter(runs), states)

    def _ended_well(self, job_id: str) -> bool:
        """A job SUCCEEDED and ran, or was CANCELLED because somebody asked for it."""
        state = self.states.get(job_id)
        if state is State.CANCELLED:
            return job_id in self.cancelled
        return state is State.SUCCEEDED and job_id in self.runs

    def figures(self) -> dict[str, Any]:
        lost = sorted(job_id for job_id in self.accepted if not self._ended_well(job_id))
        return {
            "accepted": len(self.accepted),
            "ran": sum(job_id in self.runs for job_id in self.accepted),
            "cancelled": sum(self.states.get(job_id) is State.CANCELLED for job_id in self.accepted),
            "lost": len(lost),
            "first_lost": [f"{job_id} {self.states.get(job_id)}" for job_id in lost[:5]],
            "ran_twice": sum(count > 1 for count in self.runs.values()),
            "ran_though_not_accepted": sum(job_id not in self.accepted for job_id in self.runs),
        }
