"""What do very many jobs that are due in one instant cost, and do they hold the server up?"""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from bench.common import Figures, answer, parser
from bench.drain import drain, drain_herd
from bench.figures import Target
from bench.server import Server
from rzsched.scripts import names as script_names
from rzsched.scripts import script

QUESTION = "How fast is a herd due in one instant drained, and how long does it hold the server?"
TARGETS = [Target("herd_to_plain", 0.8, at_least=True), Target("scripts_over_10_ms", 0)]
TASK = "nothing"
SLOW_US = 2_000
"""Calls longer than this are looked at one by one. Their time is by the clock: where the machine is busy otherwise, it
holds what the server waited for a core, which `server_waited_for_cpu_s` of the answer sums up."""
LONG_MS = 10.0


def watch_slow_calls(server: Server) -> None:
    server.redis.config_set("slowlog-log-slower-than", SLOW_US)
    server.redis.config_set("slowlog-max-len", 100_000)
    server.redis.slowlog_reset()


def slow_calls(entries: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, list[float]]:
    """Sort the slow log's script calls by script; ms each."""
    result: dict[str, list[float]] = {}
    for entry in entries:
        words = entry["command"].decode("utf-8", "replace").split(" ", 2)
        if words[0].upper() == "EVALSHA":
            result.setdefault(names.get(words[1], words[1]), []).append(entry["duration"] / 1000)
    return result


def measure(server: Server, jobs: int, rounds: int) -> Figures:
    """Interleave plain drains and herds; the slow log sees the herds, the writing of their jobs too."""
    plain, herd, slow = [], [], dict[str, list[float]]()
    names = {script(name).sha: name for name in script_names()}
    for _ in range(rounds):
        plain.append(drain(server, TASK, jobs).rate)
        watch_slow_calls(server)
        herd.append(drain_herd(server, TASK, jobs, lead_s=3 + jobs / 20_000).rate)
        for name, found in slow_calls(server.redis.slowlog_get(-1), names).items():
            slow.setdefault(name, []).extend(found)
    ratios = [one / other for one, other in zip(herd, plain, strict=True)]
    return {
        "herd_to_plain": statistics.median(ratios),
        "herd_to_plain_of_each_round": ratios,
        "herd_jobs_per_s": statistics.median(herd),
        "plain_jobs_per_s": statistics.median(plain),
        **_longest(slow),
    }


def _longest(slow: Mapping[str, list[float]]) -> Figures:
    every = [ms for found in slow.values() for ms in found]
    return {
        "longest_script_ms": max(every, default=SLOW_US / 1000),
        "longest_ms_by_script": {name: max(found) for name, found in sorted(slow.items())},
        "scripts_over_10_ms": sum(ms > LONG_MS for ms in every),
    }


def main() -> None:
    options = parser(QUESTION, rounds=3)
    options.add_argument("--jobs", type=int, default=100_000)
    chosen = options.parse_args()
    measured = (f"{chosen.jobs} jobs, from the due instant to the last finish, against the same already enqueued; "
                f"median of {chosen.rounds}; script calls by the slow log")
    answer(chosen, QUESTION, measured, TARGETS, lambda server: measure(server, chosen.jobs, chosen.rounds))


if __name__ == "__main__":
    main()
