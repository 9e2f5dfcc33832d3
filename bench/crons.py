"""What do many schedules cost a scheduler, spread over a minute and all in one instant?"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.common import Figures, answer, parser
from bench.figures import Target, percentile
from bench.fleet import ROOT
from bench.herd import slow_calls, watch_slow_calls
from bench.server import Server
from rzsched import Client, keys
from rzsched.job import JobOptions
from rzsched.schedules import ScheduleSpec, define, put
from rzsched.scripts import names as script_names
from rzsched.scripts import script

QUESTION = "What do schedules cost a scheduler, and how late are their occurrences?"
TARGETS = [Target("spread_cpu_percent", 15), Target("spread_p99_ms", 20), Target("herd_scripts_over_10_ms", 0)]
PERIOD_S = 60
CHUNK = 500
PLACE = keys.partition("rz", "default", 0)
_UNPLAYED = {"cron": None, "tz": "UTC", "overlap": "skip", "misfire": "once", "misfire_limit": 100, "end": None,
             "misfire_window": None, "jitter": 0, "dst_gap": "after", "dst_fold": "first"}


def spec(number: int, start_s: float) -> ScheduleSpec:
    return define("nothing", id=f"schedule-{number}", args=(number,), kwargs=None, options=JobOptions(),
                  payload_limit=1 << 20, every=PERIOD_S, start=start_s, **_UNPLAYED)


def register(client: Client, starts: list[float]) -> float:
    """Register a schedule for each start; give how many a second."""
    began = time.perf_counter()
    for first in range(0, len(starts), CHUNK):
        numbers = range(first, min(first + CHUNK, len(starts)))
        client.run(put(client.space, [spec(number, starts[number]) for number in numbers]))
    return len(starts) / (time.perf_counter() - began)


@contextmanager
def scheduler(server: Server) -> Iterator[int]:
    environment = {**os.environ, "RZSCHED_URL": server.url, "RZSCHED_NAMESPACE": "rz"}
    with (server.folder / "scheduler.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "rzsched", "scheduler"], cwd=ROOT, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def ready(server: Server) -> int:
    return int(server.redis.xlen(PLACE.ready[5]))


def lateness_ms(server: Server) -> list[float]:
    """How long after its nominal instant each occurrence became ready."""
    entries = server.redis.xrange(PLACE.ready[5])
    return [int(entry.split(b"-")[0]) - int(fields[b"id"].rpartition(b"-")[2]) for entry, fields in entries]


def spread(server: Server, count: int) -> Figures:
    with Client(server.url) as client, scheduler(server) as pid:
        begin = int(time.time() + 5 + count / 2000)
        rate = register(client, [begin + PERIOD_S * n / count for n in range(count)])
        time.sleep(max(0.0, begin - time.time()))
        used, began = cpu_s(pid), time.monotonic()
        time.sleep(PERIOD_S)
        percent = 100 * (cpu_s(pid) - used) / (time.monotonic() - began)
        time.sleep(1)
        late = lateness_ms(server)
    return {
        "registered_per_s": rate, "spread_fired": len(late), "spread_cpu_percent": percent,
        "spread_p50_ms": percentile(late, 50), "spread_p99_ms": percentile(late, 99), "spread_max_ms": max(late),
    }  # fmt: skip


def herd(server: Server, count: int) -> Figures:
    server.redis.flushall()
    watch_slow_calls(server)
    with Client(server.url) as client, scheduler(server) as pid:
        begin = int(time.time() + 10 + count / 2000)
        register(client, [begin] * count)
        time.sleep(2)
        used, began = cpu_s(pid), time.monotonic()
        time.sleep(max(1.0, begin - time.time() - 1))
        at_rest = 100 * (cpu_s(pid) - used) / (time.monotonic() - began)
        deadline = time.monotonic() + 120
        while ready(server) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        took_s = time.time() - begin
    names = {script(name).sha: name for name in script_names()}
    slow = {name: max(found) for name, found in slow_calls(server.redis.slowlog_get(-1), names).items()}
    return {
        "herd_fired": ready(server), "herd_took_s": took_s, "rest_cpu_percent": at_rest,
        "herd_longest_ms_by_script": slow, "herd_scripts_over_10_ms": sum(ms > 10 for ms in slow.values()),
    }  # fmt: skip


def main() -> None:
    options = parser(QUESTION)
    options.add_argument("--spread", type=int, default=10_000)
    options.add_argument("--herd", type=int, default=100_000)
    chosen = options.parse_args()
    measured = (f"{chosen.spread} schedules once a minute each, spread over it, for a minute; then {chosen.herd} at "
                "rest, due in one instant; no worker; script calls by the slow log")
    answer(chosen, QUESTION, measured, TARGETS,
           lambda server: spread(server, chosen.spread) | herd(server, chosen.herd))


if __name__ == "__main__":
    main()
