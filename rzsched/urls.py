"""Server URLs: checked before they are used, shown without their credentials.

Behind Sentinel: `redis+sentinel://[user:password@]host1[:26379],host2[:26379]/service[/db][?options]`. User, password
and the further options are the servers' own; `sentinel_username` and `sentinel_password` are for the sentinels.
With `rediss+sentinel` servers and sentinels speak TLS.

A cluster: `redis+cluster://[user:password@]host1[:6379],host2[:6379]/[?options]`, any of its nodes; `rediss+cluster`.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis

from rzsched.config import DEFAULT_URL

SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
SENTINEL_PORT = 26379
CLUSTER_SCHEMES = ("redis+cluster://", "rediss+cluster://")
_SCHEMES = ("redis://", "rediss://", *SENTINEL_SCHEMES, *CLUSTER_SCHEMES, "unix://", "embedded:")


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """What a Sentinel URL says. `server_url` holds what is said of the servers, its host stands for none."""

    sentinels: tuple[tuple[str, int], ...]
    service: str
    tls: bool
    server_url: str = field(repr=False)
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def where(self) -> str:
        return f"{self.service} (sentinels {','.join(f'{host}:{port}' for host, port in self.sentinels)})"


def is_sentinel(url: str) -> bool:
    return url.startswith(SENTINEL_SCHEMES)


def read_sentinel_url(url: str) -> SentinelUrl:
    """Take a Sentinel URL apart. Raises ValueError, which does not show the URL."""
    scheme, _, rest = url.partition("+sentinel://")
    rest, _, query = rest.partition("?")
    hosts, _, path = rest.partition("/")
    credentials, at, hosts = hosts.rpartition("@")
    service, _, db = path.partition("/")
    # A bare / ? or # in a password ends the hosts too early: the rest, with its @, comes after.
    sound = "#" not in url and "@" not in path + query and (db == "" or (db.isascii() and db.isdigit()))
    sentinels = tuple(_address(host) for host in hosts.split(","))
    if not sound or not service:
        raise ValueError("no service and database behind the hosts")
    options = parse_qsl(query, keep_blank_values=True)
    own = dict(pair for pair in options if pair[0].startswith("sentinel_"))
    if own.keys() - {"sentinel_username", "sentinel_password"}:
        raise ValueError("an unknown option for sentinels")
    others = urlencode([pair for pair in options if pair[0] not in own])
    server_url = f"{scheme}://{credentials}{at}server/{db or 0}{'?' if others else ''}{others}"
    return SentinelUrl(sentinels, unquote(service), scheme == "rediss", server_url, own.get("sentinel_username"),
                       own.get("sentinel_password"))


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname or parts.port == 0 or parts.path:
        raise ValueError("no host and port")
    return parts.hostname, parts.port or SENTINEL_PORT


def is_cluster(url: str) -> bool:
    return url.startswith(CLUSTER_SCHEMES)


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
    if url.startswith("embedded:"):
        return url
    if url.startswith("unix:"):
        return "unix:" + urlsplit(url).path
    try:
        if is_cluster(url):
            return ",".join(cluster_addresses(url))
        if is_sentinel(url):
            return read_sentinel_url(url).where
        parts = urlsplit(url)
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:
        return "the given URL"


def check_url(url: str) -> str:
    """Refuse a URL that can't be used, without showing it: it may hold a password."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, not {type(url).__name__}")
    if not url.startswith(_SCHEMES):
        raise ValueError(f"the server URL must begin with one of {', '.join(_SCHEMES)}, e.g. {DEFAULT_URL}")
    if url.startswith("embedded:"):
        return url
    if is_cluster(url):
        return _check_cluster(url)
    server_url = _sound_server_url(url)
    if server_url is None:
        raise ValueError(f"the server URL has no valid {_expected(url)}: percent-encode / # ? @ : in user and password")
    try:
        redis.ConnectionPool.from_url(server_url).make_connection()
        fits = True
    except (TypeError, ValueError, redis.RedisError):
        fits = False
    if not fits:
        raise ValueError("the server URL has an option that redis-py does not take")
    return url


def _expected(url: str) -> str:
    return "form redis+sentinel://host:port,host:port/service" if is_sentinel(url) else "host and port"


def _sound_server_url(url: str) -> str | None:
    """Give the URL, or what a Sentinel URL says of its servers; None where it is malformed."""
    try:
        if is_sentinel(url):
            return read_sentinel_url(url).server_url
        parts = urlsplit(url)
        # A bare / ? or # in a password ends the host's part too early: the rest, with its @, comes after.
        rest = "" if parts.scheme == "unix" else parts.path + parts.query
        return url if parts.port != 0 and not parts.fragment and "@" not in rest else None
    except ValueError:
        return None


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
