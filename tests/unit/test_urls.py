"""Sentinel URLs: what they say, what is refused, and that none of it shows."""

from __future__ import annotations

import pytest

from rzsched.urls import check_url, describe_url, read_sentinel_url


def test_a_sentinel_url_is_taken_apart() -> None:
    told = read_sentinel_url(
        "redis+sentinel://me:p%40ss%2F@a:1,[::1]:2,c/jobs/3?sentinel_username=it&sentinel_password=s%26t&socket_timeout=1"
    )
    assert told.sentinels == (("a", 1), ("::1", 2), ("c", 26379))
    assert (told.service, told.tls, told.username, told.password) == ("jobs", False, "it", "s&t")
    assert told.server_url == "redis://me:p%40ss%2F@server/3?socket_timeout=1"
    assert "p%40ss" not in repr(told) and "s&t" not in repr(told)


def test_a_sentinel_url_may_say_little() -> None:
    told = read_sentinel_url("rediss+sentinel://a/my.jobs")
    assert (told.sentinels, told.service, told.tls) == ((("a", 26379),), "my.jobs", True)
    assert (told.server_url, told.username, told.password) == ("rediss://server/0", None, None)


def test_a_described_sentinel_url_shows_no_credentials() -> None:
    url = "redis+sentinel://u:S3CRET@a:1,b:2/jobs/0?sentinel_password=S3CRET"
    assert describe_url(check_url(url)) == "jobs (sentinels a:1,b:2)"


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://u:S3CRET@a:1", "redis+sentinel://u:S3CRET@a:1/", "redis+sentinel:///jobs",
        "redis+sentinel://u:12#S3CRET@a:1/jobs", "redis+sentinel://u:12/S3CRET@a:1/jobs",
        "redis+sentinel://u:S3CRET@a:port/jobs", "redis+sentinel://u:S3CRET@a:1,,b:2/jobs",
        "redis+sentinel://u:S3CRET@a:0/jobs", "redis+sentinel://u:S3CRET@a:1/jobs/zero",
        "redis+sentinel://u:S3CRET@a:1/jobs/0/more", "redis+sentinel://u:S3CRET@a:1/jobs?sentinel_nonsense=1",
        "redis+sentinel://u:S3CRET@a:1/jobs?no_such_option=1", "redis+sentinel://a:1/jobs?sentinel_password=S3CRET@x",
    ],
)  # fmt: skip
def test_a_bad_sentinel_url_is_refused_at_once_and_never_shown(url: str) -> None:
    with pytest.raises(ValueError, match="server URL") as caught:
        check_url(url)
    assert "S3CRET" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"
    assert "S3CRET" not in describe_url(url)
