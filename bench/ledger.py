"""Books kept outside Redis, so that what the server says can be held against them."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FOLDER_VARIABLE = "RZSCHED_BENCH_LEDGER"
ACCEPTED, CANCELLED, FAILURES, RUNS = "accepted", "cancelled", "failures", "runs"


class Ledger:
    """Lines in a file of this process's own; many processes may keep a ledger of the same name."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @staticmethod
    @cache
    def of_environment(name: str) -> "Ledger":
        return Ledger(Path(os.environ[FOLDER_VARIABLE]), name)

    def write(self, *lines: str) -> None:
        """Write at once and unbuffered: a killed process has said all that it did."""
        text = "".join(f"{line}\n" for line in lines).encode()
        while text:
            text = text[os.write(self._file, text) :]


def read(folder: Path, name: str) -> Iterator[str]:
    """Give the lines of all the ledgers of a name."""
    for path in sorted(folder.glob(f"{name}.*")):
        yield from path.read_text().splitlines()
