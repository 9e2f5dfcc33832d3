"""Do the books balance after everything that can die has died?"""

import argparse
import json
import platform
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from bench.chaos.run import play
from bench.chaos.services import SERVICES
from bench.figures import Target, missed
from bench.server import ServerMissing

QUESTION = "Whatever dies, is nothing lost, and does a fault explain each run too many?"
TARGETS = [
    Target("lost", 0), Target("dead", 0), Target("unexplained", 0), Target("ran_though_cancelled", 0),
    Target("together_in_spite_of_key", 0), Target("ran", 100, at_least=True),
]  # fmt: skip
EMPTY = ("audit", "complaints", "occurrences_missing")
"""Figures that are lists of what went wrong."""


def main() -> None:
    options = argparse.ArgumentParser(description=QUESTION)
    options.add_argument("--minutes", type=float, default=2.0)
    options.add_argument("--server", choices=sorted(SERVICES), default="redis")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, help="put logs and ledgers into this folder, and keep them")
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends all that the run has started
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="rzsched-chaos-run-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = play(chosen.server, chosen.seed, chosen.minutes * 60, folder)
    except ServerMissing as error:
        sys.exit(str(error))
    finally:
        if chosen.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    unmet = missed(TARGETS, figures) + [f"{name} is not empty" for name in EMPTY if figures[name]]
    line = {"question": QUESTION, "server": chosen.server, "seed": chosen.seed, "minutes": chosen.minutes,
            "figures": figures, "missed": unmet, "met": not unmet, "on": f"Python {platform.python_version()}"}
    print(json.dumps(line), flush=True)
    sys.exit(1 if unmet else 0)


if __name__ == "__main__":
    main()
