"""Is this server fit for jobs, and is all there that they need? Facts in, verdicts out; reads only, but for scripts.

A check says what was found and, unless all is well, what to do. `bad` means that jobs are lost or refused, `warn` that
they may be, that they wait for somebody to start something, or that nobody can tell.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rzsched import calls, keys, scripts
from rzsched.answers import QueueStats, WorkerInfo
from rzsched.durability import table
from rzsched.errors import RzschedError
from rzsched.exchange import LEAST_VERSION, Step

OK, WARN, BAD = "ok", "warn", "bad"
SAMPLES = 7
_ORDER = (OK, WARN, BAD)
Ask = Callable[[Sequence[Step]], list[Any]]
"""Run steps in one round trip; give each one's answer, or the exception that it ends with."""


@dataclass(frozen=True, slots=True)
class Check:
    """One look: `verdict` is ok, warn or bad; `advice` is '' where there is nothing to do."""

    name: str
    verdict: str
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server told. `config` and `missing` (scripts that can't be loaded) are empty where it does not say."""

    info: dict[str, str]
    config: dict[str, str]
    round_trip_s: float
    ahead_s: float
    missing: tuple[str, ...] = ()
    has_waitaof: bool = False
    why_missing: str = ""

    def number(self, name: str) -> int:
        text = self.info.get(name, "")
        return int(text) if text.isdecimal() else 0


def read_info(answer: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in answer.decode("utf-8", "replace").splitlines() if ":" in line)


def ask_server(ask: Ask) -> Facts:
    """Gather the facts. Raises ConnectionFailed where the server can't be reached."""
    info, append, save, command = ask([
        calls.command("INFO", read=read_info),
        calls.command("CONFIG", "GET", "*append*", read=_words),
        calls.command("CONFIG", "GET", "save", read=_words),
        calls.command("COMMAND", "INFO", "WAITAOF", read=lambda answer: bool(answer and answer[0])),
    ])  # fmt: skip
    if isinstance(info, Exception):
        raise info
    config: dict[str, str] = {}
    for each in (append, save):
        config |= each if isinstance(each, dict) else {}  # a server that does not tell
    round_trip_s, ahead_s = _measure(ask)
    missing, why = _load_scripts(ask)
    return Facts(info, config, round_trip_s, ahead_s, missing, command is True, why)


def _words(answer: Any) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in table(answer).items()}


def _measure(ask: Ask) -> tuple[float, float]:
    """Give the shortest round trip, and how far the server's clock was ahead in it, seen from its middle."""
    samples = []
    for _ in range(SAMPLES):
        sent, begun = time.time(), time.perf_counter()
        (server_s,) = ask([calls.command("TIME", read=lambda answer: int(answer[0]) + int(answer[1]) / 1e6)])
        if isinstance(server_s, Exception):
            raise server_s
        trip = time.perf_counter() - begun
        samples.append((trip, server_s - sent - trip / 2))
    return min(samples)


def _load_scripts(ask: Ask) -> tuple[tuple[str, ...], str]:
    """Load what is not there, as every client would; name what can't be loaded, and why."""
    names = scripts.names()
    (there,) = ask([calls.command("SCRIPT", "EXISTS", *(scripts.script(name).sha for name in names), read=list)])
    if isinstance(there, Exception):
        return names, str(there)
    absent = [name for name, is_there in zip(names, there, strict=True) if not is_there]
    loaded = ask([calls.command("SCRIPT", "LOAD", scripts.script(name).text, read=bytes) for name in absent])
    failed = [(name, answer) for name, answer in zip(absent, loaded, strict=True) if isinstance(answer, Exception)]
    return tuple(name for name, _ in failed), str(failed[0][1]) if failed else ""


def judge_server(facts: Facts) -> list[Check]:
    """Judge what a server told. Pure."""
    return [
        _version(facts), _eviction(facts), _memory(facts), _persistence(facts), _replication(facts), _clock(facts),
        _round_trip(facts), _scripts(facts), _durability(facts),
    ]  # fmt: skip


def judge_masters(checks: Mapping[int | str, list[Check]]) -> list[Check]:
    """Give the worst verdict of each check over all masters, and on which one that was."""
    if len(checks) == 1:
        return next(iter(checks.values()))
    worst: dict[str, Check] = {}
    for slot, judged in checks.items():
        for check in judged:
            found = f"{check.found} (the master of slot {slot})"
            known = worst.setdefault(check.name, replace(check, found=found))
            if _ORDER.index(check.verdict) > _ORDER.index(known.verdict):
                worst[check.name] = replace(check, found=found)
    return list(worst.values())


def _version(facts: Facts) -> Check:
    told = facts.info.get("redis_version", "")
    valkey = facts.info.get("valkey_version")
    name = f"Valkey {valkey}" if valkey else f"Redis {told or '(unknown)'}"
    numbers = tuple(int(part) for part in told.split(".")[:2] if part.isdecimal())
    if not numbers:
        return Check("version", WARN, name, "the server does not tell its version: make sure it is 6.2 or newer")
    if numbers < LEAST_VERSION:
        return Check("version", BAD, name, "rzsched needs 6.2 or newer: upgrade the server")
    return Check("version", OK, name)


def _eviction(facts: Facts) -> Check:
    policy = facts.info.get("maxmemory_policy", "")
    if policy == "noeviction":
        return Check("eviction", OK, policy)
    if not policy:
        return Check("eviction", WARN, "unknown", "the server does not tell its maxmemory-policy: make it noeviction")
    return Check("eviction", BAD, policy,
                 "jobs may be dropped: CONFIG SET maxmemory-policy noeviction, and in redis.conf")


def _memory(facts: Facts) -> Check:
    used, limit = facts.number("used_memory"), facts.number("maxmemory")
    what = "maxmemory" if limit else "the machine's memory"
    limit = limit or facts.number("total_system_memory")
    if not limit:
        return Check("memory", OK, f"{used >> 20} MiB used, no limit")
    share = used / limit
    found = f"{used >> 20} MiB used, {share:.0%} of {what}"
    if share >= 0.9:
        return Check("memory", BAD, found, "new jobs will be refused: add memory, purge dead jobs, or cut retention")
    if share >= 0.75:
        return Check("memory", WARN, found, "new jobs are refused at 100 %: plan for more memory")
    return Check("memory", OK, found)


def _persistence(facts: Facts) -> Check:
    info, fsync = facts.info, facts.config.get("appendfsync", "")
    if info.get("loading") == "1":
        return Check("persistence", WARN, "the server is loading its data", "wait until it has")
    if info.get("aof_enabled") == "1":
        if info.get("aof_last_write_status", "ok") != "ok" or info.get("aof_last_bgrewrite_status", "ok") != "ok":
            return Check("persistence", BAD, "the append-only file can't be written",
                         "look for a full disk, and at its log")
        lost = {"always": "a crash loses nothing", "everysec": "a crash may lose the last second"}.get(fsync)
        found = f"append-only file, appendfsync {fsync or 'unknown'}"
        if not fsync:
            return Check("persistence", WARN, found, _UNTOLD)
        if lost:
            return Check("persistence", OK, f"{found}: {lost}")
        return Check("persistence", WARN, found, "a crash may lose half a minute: set appendfsync everysec or always")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return Check("persistence", BAD, "the last snapshot failed", "writes may be refused: look for a full disk")
    saves = facts.config.get("save")
    if saves == "":
        return Check("persistence", WARN, "none: a restart loses every job", _APPEND)
    if saves is None:
        return Check("persistence", WARN, "no append-only file, snapshots unknown", _UNTOLD)
    age_s = max(int(time.time()) - facts.number("rdb_last_save_time"), 0)
    found = f"snapshots only: a crash loses what came since the last, {age_s} s ago"
    return Check("persistence", WARN, found, _APPEND)


_UNTOLD = "this user may not read the settings: look at appendonly, appendfsync and save yourself"
_APPEND = "CONFIG SET appendonly yes, and in redis.conf"


def _replication(facts: Facts) -> Check:
    if facts.info.get("role") in {"slave", "replica"}:
        return Check("replication", BAD, "this is a replica, and takes no jobs", "use the URL of its master")
    replicas = [value for name, value in facts.info.items() if name.startswith("slave") and name[5:].isdecimal()]
    if not replicas:
        return Check("replication", OK, "no replica: durability 'replicated' can't be had")
    away = [each for each in replicas if "state=online" not in each]
    found = f"{len(replicas)} replicas" if len(replicas) > 1 else "1 replica"
    if away:
        return Check("replication", WARN, f"{found}, {len(away)} of them not in step",
                     "look at their logs and the network")
    return Check("replication", OK, found)


def _clock(facts: Facts) -> Check:
    unsure = facts.round_trip_s / 2
    found = f"the server's is {facts.ahead_s * 1000:+.0f} ms from this host's (within {unsure * 1000:.1f} ms)"
    if abs(facts.ahead_s) - unsure > 1:
        return Check("clock", WARN, found,
                     "jobs go by the server's clock, what this host prints does not: run NTP on both")
    return Check("clock", OK, found)


def _round_trip(facts: Facts) -> Check:
    found = f"{facts.round_trip_s * 1000:.2f} ms"
    if facts.round_trip_s > 0.05:
        return Check("round_trip", WARN, found, "workers should be near the server: each claim takes a round trip")
    return Check("round_trip", OK, found)


def _scripts(facts: Facts) -> Check:
    total = len(scripts.names())
    if facts.missing:
        return Check("scripts", BAD, f"{len(facts.missing)} of {total} can't be loaded: {facts.why_missing}",
                     "let this user run SCRIPT and EVALSHA")
    return Check("scripts", OK, f"{total} of {total} are loaded")


def _durability(facts: Facts) -> Check:
    levels = ["memory"]
    if any(name.startswith("slave") and name[5:].isdecimal() for name in facts.info):
        levels.append("replicated")
    always = facts.config.get("appendfsync") == "always" and facts.config.get("no-appendfsync-on-rewrite") == "no"
    if facts.info.get("aof_enabled") == "1" and (facts.has_waitaof or always):
        levels.append("fsync")
    return Check("durability", OK, f"calls may ask for {', '.join(levels)}")


def judge_fleet(schedulers: int, workers: Sequence[WorkerInfo], queues: Sequence[QueueStats],
                schedules: int) -> list[Check]:
    """Judge who is alive against what there is to do. Pure."""
    waiting = sum(stats.scheduled for stats in queues)
    found = f"{schedulers} alive"
    if schedulers:
        first = Check("schedulers", OK, found)
    elif waiting or schedules:
        first = Check("schedulers", WARN, f"none, for {waiting} scheduled jobs and {schedules} schedules",
                      "start rzsched scheduler, or a worker without --no-scheduler")
    else:
        first = Check("schedulers", WARN, "none", "start a worker, or rzsched scheduler, before jobs are due")
    return [first, _workers(workers, queues)]


def _workers(workers: Sequence[WorkerInfo], queues: Sequence[QueueStats]) -> Check:
    served = {queue for worker in workers for queue in worker.queues}
    idle = sorted(stats.queue for stats in queues if stats.ready and stats.queue not in served)
    if idle:
        return Check("workers", WARN, f"{len(workers)} alive, none for {', '.join(idle[:10])}, where jobs are ready",
                     "start a worker with -q of that queue")
    if not workers:
        return Check("workers", WARN, "none", "start one: rzsched worker module:app")
    return Check("workers", OK, f"{len(workers)} alive, for {', '.join(sorted(served)[:10])}")


def count_schedulers(ask: Ask, namespace: str) -> int:
    (found,) = ask([calls.attend(keys.schedulers(namespace))])
    if isinstance(found, RzschedError):
        raise found
    return len(found.ids)
