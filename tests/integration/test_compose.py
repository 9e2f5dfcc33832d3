"""The compose file starts what the README promises; `.ci/run` also has docker-compose itself check it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCHEDULERS = ["scheduler-1", "scheduler-2"]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


def test_redis_7_is_durable_and_never_evicts(services: dict[str, Any]) -> None:
    redis = services["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert redis["image"].startswith("redis:7")
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert redis["volumes"] == ["redis-data:/data"]
    assert "redis-cli ping" in redis["healthcheck"]["test"][1]


def test_redis_is_published_to_this_machine_only(services: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in services["redis"]["ports"])


def test_there_are_two_schedulers_and_workers_that_scale(services: dict[str, Any]) -> None:
    assert set(services) == {"redis", "worker", *SCHEDULERS}
    # A fixed name or a published port would keep a second container from starting.
    assert not {"container_name", "ports"} & set(services["worker"])


@pytest.mark.parametrize("name", [*SCHEDULERS, "worker"])
def test_each_role_runs_the_chosen_app_once_redis_is_healthy(services: dict[str, Any], name: str) -> None:
    service = services[name]
    command = service["command"][-1]
    assert re.search(rf"&& exec rzsched {name.partition('-')[0]} \$\$RZSCHED_APP\b", command)
    assert service["environment"]["RZSCHED_APP"] == "${RZSCHED_APP:-rzsched.demo.app:app}"
    assert service["environment"]["RZSCHED_URL"] == "redis://redis:6379/0"
    assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}


def test_a_worker_has_time_to_hand_its_jobs_back(services: dict[str, Any]) -> None:
    default_shutdown_timeout_s = 25
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > default_shutdown_timeout_s
