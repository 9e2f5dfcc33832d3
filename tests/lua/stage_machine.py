"""What every state machine over the verbs begins with: a stage of its own, and workers that have joined."""

from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, run_state_machine_as_test

from rzsched import calls
from rzsched.calls import Claimed, Outcome
from tests.states import Stage, outcome

T = TypeVar("T")
OUTCOMES = st.sampled_from(["SUCCEEDED", "SUCCEEDED", "RETRY", "DEAD", "CANCELLED", "RELEASED", "UNKNOWN"])
ANY = st.integers(0, 40)
ENDING = {"SUCCEEDED", "DEAD", "CANCELLED"}


def pick(number: int, things: list[T]) -> T:
    """Choose the newest for 0, so that failures shrink to the plain case."""
    return things[-1 - number % len(things)]


def any_outcome(what: str, run: Claimed, delay_ms: int) -> Outcome:
    return outcome(what, run, "", "3600000" if what in ENDING else str(delay_ms), "5000" if what == "UNKNOWN" else "")


class StageMachine(RuleBasedStateMachine):
    """Rules over one partition of the server at `url`, whose clock they move."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(self.url)
        self.stage.raw.flushdb()
        self.stage.raw.hset("rz:queues", "q", 1)
        self.runs: list[tuple[str, Claimed]] = []

    def drain(self) -> None:
        """Have all that was begun come to its end, where a machine can say what that is."""

    def teardown(self) -> None:
        self.drain()
        self.stage.close()

    @initialize()
    def workers_join(self) -> None:
        self.stage.run(calls.join(self.stage.place, 15, []))


def run_machine(machine: type[StageMachine], url: str, examples: int) -> None:
    """Play a machine on a server."""
    here: Any = type(machine.__name__, (machine,), {"url": url})
    run_state_machine_as_test(
        here,
        settings=settings(max_examples=examples, stateful_step_count=40, deadline=None, print_blob=True,
                          suppress_health_check=list(HealthCheck)),
    )  # fmt: skip
