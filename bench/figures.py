"""Pure arithmetic on what was measured: percentiles, `INFO commandstats`, targets met or missed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that at least `percent` of all do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]


def percentile_of_counts(counts: Mapping[float, int], percent: float) -> float:
    """Give the same for values that come with how often each was seen."""
    total = sum(counts.values())
    if not total:
        raise ValueError("no values, no percentile")
    rank, seen = max(math.ceil(percent / 100 * total), 1), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    raise AssertionError("a rank is never past the last value")


class CommandStat(NamedTuple):
    """What a server says of one command since its statistics were reset."""

    calls: int
    usec: float


CommandStats = Mapping[str, CommandStat]
BENCH_COMMANDS = frozenset({"info", "config"})
"""Commands that only the measurement sends; with their subcommands."""
NEVER_NESTED = frozenset({"evalsha", "eval", "script", "hello", "auth", "client", "ping", "subscribe", "unsubscribe"})
"""Commands that no script calls: their time is not inside that of another."""


def read_command_stats(info: Mapping[str, Mapping[str, Any]]) -> dict[str, CommandStat]:
    """Read `INFO commandstats` as redis-py parses it, without the measurement's own commands."""
    stats = {
        name.removeprefix("cmdstat_"): CommandStat(int(values["calls"]), float(values["usec"]))
        for name, values in info.items()
    }
    return {name: stat for name, stat in stats.items() if name.partition("|")[0] not in BENCH_COMMANDS}


def calls_in_all(stats: CommandStats) -> int:
    """Count every command that ran, a script and those that it called alike."""
    return sum(stat.calls for stat in stats.values())


def usec_in_all(stats: CommandStats) -> float:
    """Sum the server's time. A script's own time holds that of the commands it calls, so these are not added."""
    return sum(stat.usec for name, stat in stats.items() if name.partition("|")[0] in NEVER_NESTED)


def without(stats: CommandStats, name: str, calls: int) -> dict[str, CommandStat]:
    """Take the measurement's own calls of a command out, at that command's mean cost."""
    found = stats.get(name, CommandStat(0, 0.0))
    left = max(found.calls - calls, 0)
    share = left / found.calls if found.calls else 0.0
    return {**stats, name: CommandStat(left, found.usec * share)}


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach: at most `limit`, or at least where `at_least`."""

    figure: str
    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{self.figure} {'>=' if self.at_least else '<='} {self.limit:g}"

    def is_met(self, figures: Mapping[str, Any]) -> bool:
        value = figures[self.figure]
        return bool(value >= self.limit if self.at_least else value <= self.limit)


def missed(targets: Iterable[Target], figures: Mapping[str, Any]) -> list[str]:
    return [str(target) for target in targets if not target.is_met(figures)]
