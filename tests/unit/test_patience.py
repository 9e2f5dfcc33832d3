"""Backoff: waits grow, and no two links wait alike."""

from __future__ import annotations

import itertools

from rzsched.patience import backoff_delays


def test_waits_grow_to_a_second_and_no_two_links_wait_alike() -> None:
    links = [list(itertools.islice(backoff_delays(), 12)) for _ in range(200)]
    for tries in zip(*links, strict=True):
        assert len(set(tries)) > 190
        assert max(tries) > 1.5 * min(tries), "they spread"
    for delays in links:
        assert 0 < delays[0] < 0.05
        assert all(0.5 <= delay <= 1.5 for delay in delays[-4:])
        assert sum(delays[:6]) < 2


def test_waits_end_with_the_time_there_is() -> None:
    for _ in range(100):
        delays = list(backoff_delays(1.0))
        assert 1.0 <= sum(delays) < 3.0
