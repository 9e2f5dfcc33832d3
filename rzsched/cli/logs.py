"""Logging for people and for grep: each record is one line on stderr, `time LEVEL logger message key=value`.

No record can break into two lines or carry a terminal's control characters, and no password passes.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from rzsched.cli.secrets import hide

LINE_CHARS = 16_384
_STANDARD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
_HANDLER = "rzsched-cli"


def set_up(level: int, *, verbose: bool = False) -> None:
    """Log to stderr from `level` on; `verbose` adds this package's DEBUG records, and no other's.

    Other libraries' DEBUG records may hold what must not be shown: commands, payloads.
    """
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if handler.name == _HANDLER]:
        root.removeHandler(old)
    handler = _StderrHandler()
    handler.name = _HANDLER
    handler.setFormatter(LineFormatter(traces=verbose))
    root.addHandler(handler)
    root.setLevel(level)
    logging.getLogger("rzsched").setLevel(logging.DEBUG if verbose else logging.NOTSET)


class _StderrHandler(logging.Handler):
    """Write to whatever stderr is by then: somebody may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # nobody reads any more: that must not stop the work
        except Exception:
            self.handleError(record)


class LineFormatter(logging.Formatter):
    """Format a record as one line; `extra` becomes key=value. `traces` adds whole tracebacks, escaped."""

    def __init__(self, *, traces: bool = False) -> None:
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info and record.exc_info[1]:
            facts |= self._error_facts(record.exc_info[1])
        told = "".join(f" {key}={_word(value)}" for key, value in facts.items())
        line = f"{when.replace('+00:00', 'Z')} {record.levelname} {record.name} {record.getMessage()}{told}"
        # Hidden before it is cut: half a password is still one.
        line = escaped(hide(line))
        return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 3] + "..."

    def _error_facts(self, error: BaseException) -> dict[str, str]:
        if self._traces:
            return {"traceback": "".join(traceback.format_exception(error)).rstrip()}
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return {"error": f"{type(error).__name__}: {_text(error)}", "at": where}


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # a foreign __str__ may do anything
        return f"<{type(value).__name__}>"


def _word(value: Any) -> str:
    text = _text(value)
    plain = text and all(c.isprintable() and c not in ' ="' for c in text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """Escape whatever is not printable, newlines among it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
