"""A process has a Ray of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from forge_worker.runners.process.runner import private_ray

OWN = "/own"


def told(*, memory_mb: int = 1000, **given: Any) -> dict[str, str]:  # noqa: ANN401  fields of all types
    spec: Any = SimpleNamespace(**{"memory_mb": memory_mb, "env": {}, "secrets": {}, **given})
    return private_ray(spec, OWN)


def test_each_job_has_a_folder_and_a_token_of_its_own() -> None:
    first, other = told(), told()
    assert first["RAY_TMPDIR"] == OWN
    assert len(first["RAY_AUTH_TOKEN"]) == 64
    assert first["RAY_AUTH_TOKEN"] != other["RAY_AUTH_TOKEN"]


@pytest.mark.parametrize(("memory_mb", "share_mb"), [(1000, 300), (100, 80)])
def test_the_object_store_has_a_share_of_the_jobs_memory(memory_mb: int, share_mb: int) -> None:
    # Ray refuses less than 75 MiB.
    assert told(memory_mb=memory_mb)["RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"] == str(
        share_mb << 20
    )


@pytest.mark.parametrize("place", ["env", "secrets"])
@pytest.mark.parametrize("name", ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_a_job_with_a_cluster_of_its_own_keeps_its_token(place: str, name: str) -> None:
    theirs: dict[str, Any] = {place: {name: "theirs"}}
    assert "RAY_AUTH_TOKEN" not in told(**theirs)
