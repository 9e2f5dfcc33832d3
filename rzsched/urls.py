"""Server URLs: checked before they are used, shown without their credentials."""

from urllib.parse import urlsplit

import redis

from rzsched.config import DEFAULT_URL


def describe_url(url: str) -> str:
    """Show where a URL points, without its credentials."""
    if url.startswith("embedded:"):
        return url
    if url.startswith("unix:"):
        return "unix:" + urlsplit(url).path
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:
        return "the given URL"


def check_url(url: str) -> str:
    """Refuse a URL that redis-py can't take, without showing it: it may hold a password."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, not {type(url).__name__}")
    known = ("redis://", "rediss://", "unix://", "embedded:")
    if not url.startswith(known):
        raise ValueError(f"the server URL must begin with one of {', '.join(known)}, e.g. {DEFAULT_URL}")
    if url.startswith("embedded:"):
        return url
    try:
        parts = urlsplit(url)
        # A bare / ? or # in a password ends the host's part too early: the rest, with its @, comes after.
        rest = "" if parts.scheme == "unix" else parts.path + parts.query
        sound = parts.port != 0 and not parts.fragment and "@" not in rest
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("the server URL has no valid host and port: percent-encode / # ? @ : in user and password")
    try:
        redis.ConnectionPool.from_url(url).make_connection()
        fits = True
    except (TypeError, ValueError, redis.RedisError):
        fits = False
    if not fits:
        raise ValueError("the server URL has an option that redis-py does not take")
    return url
