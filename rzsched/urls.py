"""Server URLs: checked before they are used, shown without their credentials."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

import redis

from rzsched.config import DEFAULT_URL

CLUSTER = ("redis+cluster://", "rediss+cluster://")


def is_cluster(url: str) -> bool:
    return url.startswith(CLUSTER)


class _ClusterUrl(NamedTuple):
    scheme: str
    credentials: str
    hosts: list[str]
    rest: str

    def at(self, address: str) -> str:
        return f"{self.scheme}://{self.credentials}{address}/{self.rest}"


def _split_cluster(url: str) -> _ClusterUrl:
    """Take `scheme+cluster://credentials@host:port,host:port/options` apart."""
    scheme, _, rest = url.partition("+cluster://")
    place, mark, options = re.match(r"([^/?#]*)([/?#]?)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    credentials, at, hosts = place.rpartition("@")
    return _ClusterUrl(scheme, credentials + at, hosts.split(","), options if mark in "/" else mark + options)


def cluster_addresses(url: str) -> list[str]:
    """Give the `host:port` of each node that a cluster URL names."""
    found = [urlsplit(f"redis://{host}") for host in _split_cluster(url).hosts]
    names = [f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname for parts in found]
    return [f"{name}:{parts.port or 6379}" for name, parts in zip(names, found, strict=True)]


def node_url(url: str, address: str) -> str:
    """Give the URL of one node of a cluster, with the credentials and options of the cluster's."""
    return _split_cluster(url).at(address)


def describe_url(url: str) -> str:
    """Show where a URL points, without its credentials."""
    if is_cluster(url):
        try:
            return ",".join(cluster_addresses(url))
        except ValueError:
            return "the given URL"
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
    known = ("redis://", "rediss://", *CLUSTER, "unix://", "embedded:")
    if not url.startswith(known):
        raise ValueError(f"the server URL must begin with one of {', '.join(known)}, e.g. {DEFAULT_URL}")
    if url.startswith("embedded:"):
        return url
    if is_cluster(url):
        return _check_cluster(url)
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


def _check_cluster(url: str) -> str:
    """Refuse a cluster URL of which a node's URL would be refused, or that names a database: a cluster has only one."""
    split = _split_cluster(url)
    for host in split.hosts:
        if not host or host.startswith(":"):
            raise ValueError("the cluster URL must name each node as host:port, e.g. redis+cluster://a:6379,b:6379/")
        check_url(split.at(host))
    if split.rest.partition("?")[0].strip("/") not in {"", "0"}:
        raise ValueError("the cluster URL names a database: a cluster has only database 0, leave it out")
    return url
