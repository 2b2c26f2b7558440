"""How often a job in a container asks the engine: a few times in all, and never while it runs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import docker
import pytest
from docker import APIClient
from forge_worker.runners.docker import container
from forge_worker.runners.docker.engine import EngineRun
from forge_worker.runners.runner import StartFailed
from support.engine.images import BASE_IMAGE
from support.workers.runners import Bench, docker_only, engine_kind, make_spec

if TYPE_CHECKING:
    pass

WAITS = "import os\nprint('ready', flush=True)\nwhile not os.path.exists('go'): pass\nexit(5)"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every request to the engine from now on, as its method and the last part of its path."""
    seen: list[str] = []
    sends = APIClient.request

    def request(self: APIClient, method: str, url: str, **words: Any) -> object:  # noqa: ANN401  as it is
        seen.append(f"{method} {url.rpartition('/')[2]}")
        return sends(self, method, url, **words)

    monkeypatch.setattr(APIClient, "request", request)
    return seen


def test_job_needs_few_requests(bench: Bench, requests: list[str]) -> None:
    with closing(docker.from_env()) as client:
        image = client.images.get(BASE_IMAGE).id
    bench.run("true", image=image).result()
    job = bench.python(WAITS, image=image)
    job.expect(b"ready")
    assert job.handle.wait(0) is None
    requests.clear()
    assert job.handle.wait(1) is None
    assert requests == []
    (job.spec.work_dir / "go").touch()
    assert job.result().code == 5
    assert requests[:2] == ["POST wait", "GET json"]
    if engine_kind().podman:
        # Each container has a network, and the engine's process is not watched.
        return
    requests.clear()
    job = bench.run("true", image=image)
    job.result()
    job.handle.remove()
    # The second look is missing if the job has ended before the first one.
    assert requests[:3] == ["POST create", "POST start", "GET json"]
    assert requests[-1].startswith("DELETE ")
    # Once ended, it is asked whether others stopped it.
    assert [each.partition("?")[0] for each in requests].count("GET events") == 1
    assert len(requests) <= 7


def test_code_of_a_job_is_void_if_the_engine_was_another_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody saw that the engine was away: while the job runs, it is not asked."""
    docker_only("its containers outlive it")
    job = bench.python(WAITS)
    job.expect(b"ready")
    assert job.handle.wait(0) is None
    monkeypatch.setattr(EngineRun, "lasts", lambda _self: False)
    monkeypatch.setattr(container, "engine_run", lambda _engine: EngineRun("another"))
    (job.spec.work_dir / "go").touch()
    ended = job.result()
    assert ended.code is None
    assert "code 5" in ended.detail


def test_image_that_was_removed_after_its_preparation_is_said_clearly(bench: Bench) -> None:
    with closing(docker.from_env()) as client:
        made = client.containers.create(BASE_IMAGE, "true")
        image = str(made.commit().id)
        made.remove()
        bench.run("true", image=image).result()
        for job in bench.jobs:
            job.handle.remove()
        client.images.remove(image)
    spec = make_spec(bench.root, ("true",), image=image)
    for _ in range(2):
        with pytest.raises(StartFailed, match="no longer on this machine"):
            bench.runner.start(spec)
