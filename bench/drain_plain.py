"""How fast does one worker process drain no-op `plain def` jobs, against what the server could do?"""

from bench import drain
from bench.common import answer, parser

QUESTION = "How near to the server's ceiling does one worker drain no-op `plain def` jobs?"
TASK = "nothing_plain"
TARGETS = drain.targets(0.40)


def main() -> None:
    options = parser(QUESTION, rounds=3)
    options.add_argument("--jobs", type=int, default=50_000)
    chosen = options.parse_args()
    measured = f"{chosen.jobs} jobs, first claim to last finish, median of {chosen.rounds}"
    answer(chosen, QUESTION, measured, TARGETS, lambda server: drain.measure(server, TASK, chosen.jobs, chosen.rounds))


if __name__ == "__main__":
    main()
