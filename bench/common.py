"""What every measurement shares: its command line, its one line of JSON."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bench.figures import Target, missed
from bench.server import KINDS, Server, ServerMissing

Figures = dict[str, Any]
"""Figures by name; a number is rounded when it is printed."""


def parser(question: str, *, rounds: int | None = None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=question)
    result.add_argument("--server", choices=KINDS, default="redis", help="which server to start (default: redis)")
    if rounds is not None:
        result.add_argument("--rounds", type=int, default=rounds, help=f"medians are over these (default: {rounds})")
    return result


def answer(options: argparse.Namespace, question: str, measured: str, targets: Sequence[Target],
           measure: Callable[[Server], Figures]) -> bool:
    """Start a server, measure on it and print the answer; say whether every target was met."""
    try:
        with Server(options.server) as server:
            version = server.version
            figures = measure(server)
            cpu_wait_s = server.cpu_wait_s()
    except ServerMissing as error:
        sys.exit(str(error))
    unmet = missed(targets, figures)
    line = {
        "question": question,
        "measured": measured,
        "figures": {name: _rounded(value) for name, value in figures.items()},
        "target": [str(target) for target in targets],
        "missed": unmet,
        "met": not unmet,
        "on": f"{version}, Python {platform.python_version()}, {os.cpu_count()} cores",
        # How much to trust it: on a machine that is busy otherwise this is not small.
        "server_waited_for_cpu_s": _rounded(cpu_wait_s),
    }
    print(json.dumps(line), flush=True)
    return not unmet


def _rounded(value: Any) -> Any:
    """Round to what a reader wants to see, all the way down."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return round(value) if abs(value) >= 1000 else round(value, 3)
    return value
