"""The plan of the house: imports point downward only, and only the edge reads the environment."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rzsched"

LAYERS = [
    {"endings", "errors", "retry", "keys", "resources", "context", "audit_rules", "embedded_watcher", "wallclock",
     "hooks", "handshakes", "encryption", "aim"},
    {"names", "refusals", "signatures", "troubles", "payload_faults", "scripts", "embedded", "cron_fields"},
    {"codec"},
    {"config", "cron_times", "cron_words"},
    {"options", "urls", "cron"},
    {"status", "schedule"},
    {"job", "sentinel"},
    {"pools"},
    {"calls"},
    {"answers", "copies", "durability", "packing", "cron_calls", "cron_answers", "layout", "herd"},
    {"exchange"},
    {"space", "patience", "members", "topology"},
    {"keeping", "connect", "offers"},
    {"rounds", "growth", "due_wait"},
    {"cluster"},
    {"links"},
    {"operations", "dead_letters", "limits", "schedules", "firing", "recovery", "audit_crons"},
    {"audit", "listing", "client", "doctor", "reader", "listening", "sweeping"},
    {"aio", "scheduler", "repair"},
    {"scheduler_hosts"},
    {"app"},
    {"execution", "declaring"},
    {"lanes", "lease", "reporter", "posts"},
    {"regaining", "leaving"},
    {"idle"},
    {"pump"},
    {"crew", "supervisor", "joining"},
    {"worker"},
    {"__init__"},
    {"demo", "cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
READS_ENVIRONMENT = {"client", "aio", "app", "supervisor", "cli", "demo"}
"""The edge: where a URL may come from $RZSCHED_URL, and where child processes get theirs."""


def _unit(path: Path) -> str:
    """Name the module, or the sub-package, that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rzsched":
            parts = node.module.split(".")[1:]
            found |= {parts[0]} if parts else {_target(alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("rzsched.")}
    return found


def _target(name: str) -> str:
    return name if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir() else "__init__"


MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward_only(path: Path) -> None:
    unit = _unit(path)
    assert unit in RANK, f"{unit} has no place in the plan of the house: give it one in LAYERS"
    for other in _imports(path) - {unit}:
        # The command line and the demo are the same edge: each may call the other.
        assert RANK[other] < RANK[unit] or {unit, other} == {"cli", "demo"}, f"{unit} imports {other}, not below it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_edge_reads_the_environment(path: Path) -> None:
    reads = any(
        isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    assert not reads or _unit(path) in READS_ENVIRONMENT


def test_every_layer_names_modules_that_exist() -> None:
    there = {_unit(path) for path in MODULES}
    assert set(RANK) <= there
