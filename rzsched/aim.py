"""When to ask for what is due at an instant, so that the question comes to the server just after it."""

from __future__ import annotations

FIRST_LEAD_S = 0.0001
MOST_LEAD_S = 0.002
AIM_S = 0.0005
"""How far its clock should be when the server has answered, past the instant: about as long as the answer takes it."""
SHARE = 0.2
"""How much of a miss the next lead makes good."""
MOST_MISS_S = 0.0003
"""What misses by more counts as this: it was held up, and that tells little of the way."""


class Aim:
    """Learn from how late questions come how much earlier to send them.

    The server's clock is known from an answer, which was written before it came, and a question takes its time on the
    way too. Both depend on the network, the machines and their load.
    """

    def __init__(self) -> None:
        self.lead_s = FIRST_LEAD_S
        self._due_ms: int | None = None

    def take(self, due_ms: int | None) -> None:
        """Note which instant of the server's clock the next question was timed for; None for none that tells."""
        self._due_ms = due_ms

    def heard(self, server_us: int) -> None:
        """Learn from the server's clock in the answer to a question, if that was aimed; 0 where it tells none."""
        due_ms, self._due_ms = self._due_ms, None
        if due_ms is None or not server_us:
            return
        miss_s = server_us / 1_000_000 - due_ms / 1000 - AIM_S
        miss_s = max(-MOST_MISS_S, min(miss_s, MOST_MISS_S))
        self.lead_s = max(0.0, min(self.lead_s + SHARE * miss_s, MOST_LEAD_S))
