"""A stage for each test, left with every job in exactly one place."""

from collections.abc import Iterator

import pytest

from tests.states import Stage


@pytest.fixture
def bare_stage(redis_url: str) -> Iterator[Stage]:
    """A stage without the audit at its end, for what a foreign hand did."""
    stage = Stage(redis_url)
    yield stage
    stage.close()


@pytest.fixture
def stage(bare_stage: Stage) -> Iterator[Stage]:
    yield bare_stage
    bare_stage.check()
