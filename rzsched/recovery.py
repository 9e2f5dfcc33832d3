"""Take back what a lost worker holds, in steps that do not hold the server up."""

from rzsched import calls
from rzsched.calls import Recovered
from rzsched.keys import Partition
from rzsched.links import AnyAsyncLink

MOST_AT_ONCE = 200


async def recover(link: AnyAsyncLink, place: Partition, *, worker: str = "", idle_s: float = 0,
                  default_max_retries: int = 3) -> list[Recovered]:
    """Take back all that was lost in a partition, or all that `worker` holds there, in bounded steps."""
    result: list[Recovered] = []
    while True:
        found: list[Recovered]
        (found,) = await link.execute([
            calls.recover(place, worker=worker, idle_s=idle_s, limit=MOST_AT_ONCE,
                          default_max_retries=default_max_retries)
        ])  # fmt: skip
        result += found
        if len(found) < MOST_AT_ONCE:
            return result
