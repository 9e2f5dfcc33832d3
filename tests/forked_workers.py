"""Fork workers and schedulers from one process, so that many start in the time of one; see `tests.fleet.Forker`.

Each line of standard input is a JSON object: `{"role": "worker" | "scheduler", "settings": {…}}`; the answer is a pid.
"""

import json
import logging
import os
import signal
import sys
from typing import Any, NoReturn

from rzsched.config import SchedulerSettings, WorkerSettings
from rzsched.scheduler_hosts import run_scheduler
from rzsched.worker import run_worker
from tests.servers import die_with_parent
from tests.tasks_app import app


def serve(wanted: dict[str, Any]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        settings = wanted["settings"]
        if wanted["role"] == "worker":
            queues = tuple((queue, 1) for queue in settings.pop("queues", ["default"]))
            code = run_worker(app, WorkerSettings(queues=queues, **settings))
        else:
            code = run_scheduler(app.url, app.namespace, SchedulerSettings(**settings))
    finally:
        os._exit(code)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes the dead ones away
    tie = die_with_parent()
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            if tie is not None:
                tie()
            serve(json.loads(line))
        print(pid, flush=True)


main()
