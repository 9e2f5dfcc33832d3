"""Keep passwords out of whatever is printed or logged."""

import re
from urllib.parse import parse_qsl, quote, unquote

_CREDENTIALS = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://)\S{0,1000}@")
_PARAMETER = re.compile(r"(?i)((?:password|passwd|secret)=)[^&\s'\"]+")
_SHORTEST = 3
_known: set[str] = set()


def remember_url(url: str | None) -> None:
    """Learn a server URL's password, so that it is hidden wherever it may turn up, decoded or not.

    A password with raw `/`, `#` or `@` makes a URL that nobody reads alike, so this takes the longest reading.
    """
    _, found, rest = (url or "").partition("://")
    credentials, at, _ = rest.rpartition("@")
    passwords = [credentials.partition(":")[2] if found and at else ""]
    passwords += [value for name, value in parse_qsl(rest.partition("?")[2]) if name.endswith("password")]
    for password in passwords:
        if len(password) >= _SHORTEST:
            _known.update((password, unquote(password), quote(password, safe="")))


def hide(text: str) -> str:
    """Replace every password in a text that is about to be shown."""
    for password in sorted(_known, key=len, reverse=True):
        text = text.replace(password, "***")
    return _PARAMETER.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))
