"""Load the Lua scripts, expand their includes, and know each one's contract.

A script's header says, in this order: its purpose, `KEYS:`, `ARGV:` and `Returns`. A test holds the header
against the body. Includes go one level deep: a comment line `-- @include lib/x.lua` becomes that file.
"""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1

from rzsched.resources import lua_dir

_INCLUDE = re.compile(r"^-- @include (lib/[a-z_]+\.lua)$", re.MULTILINE)
_STATUS = re.compile(r"\b[A-Z][A-Z_]+\b")


@dataclass(frozen=True, slots=True)
class Script:
    """One verb: its text as sent to the server, and what its header promises.

    `arguments` are the named ones; `repeats`: a tail of groups follows them. A status begins an answer; `words` are the
    statuses and what the answer says of single jobs.
    """

    name: str
    text: str
    sha: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    repeats: bool
    statuses: frozenset[str]
    words: frozenset[str]


def _read(path: str) -> str:
    return lua_dir().joinpath(path).read_text(encoding="utf-8")


def _header(source: str) -> str:
    lines = []
    for line in source.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].strip())
    return "\n".join(lines)


@cache
def script(name: str) -> Script:
    source = _read(f"{name}.lua")
    text = _INCLUDE.sub(lambda found: _read(found[1]).rstrip(), source)
    header = _header(source)
    keys = re.search(r"^KEYS: (.+)$", header, re.MULTILINE)
    argv = re.search(r"^ARGV: ([^:\[\n]*)(\[)?", header, re.MULTILINE)
    returns = re.search(r"^Returns (.+)", header, re.MULTILINE | re.DOTALL)
    promised = returns[1].split("@include")[0] if returns else ""
    return Script(
        name=name,
        text=text,
        sha=sha1(text.encode(), usedforsecurity=False).hexdigest(),
        keys=tuple(keys[1].split()) if keys else (),
        arguments=tuple(argv[1].split()) if argv else (),
        repeats=bool(argv and argv[2]),
        statuses=frozenset(_first_words(promised)),
        words=frozenset(_STATUS.findall(promised)),
    )


def _first_words(returns: str) -> list[str]:
    """Find the status that begins each alternative of a `Returns A … | B …` line."""
    return [found[0] for part in returns.partition(":")[0].split("|") if (found := _STATUS.search(part))]


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted(path.name[:-4] for path in lua_dir().iterdir() if path.name.endswith(".lua")))
