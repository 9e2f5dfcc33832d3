"""Choose the link for a server URL: one server, or a cluster of them."""

from rzsched.cluster import AsyncClusterLink, SyncClusterLink
from rzsched.connect import AsyncLink, LinkSettings, SyncLink
from rzsched.urls import check_url, is_cluster

AnySyncLink = SyncLink | SyncClusterLink
AnyAsyncLink = AsyncLink | AsyncClusterLink


def sync_link(url: str, settings: LinkSettings) -> AnySyncLink:
    return SyncClusterLink(url, settings) if is_cluster(check_url(url)) else SyncLink(url, settings)


def async_link(url: str, settings: LinkSettings) -> AnyAsyncLink:
    return AsyncClusterLink(url, settings) if is_cluster(check_url(url)) else AsyncLink(url, settings)
