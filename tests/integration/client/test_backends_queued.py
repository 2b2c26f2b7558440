"""The message about a job that was just submitted, directly and through a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_client.cli.show.standing import resources
from forge_client.cli.show.submitted import tell_job, tell_nobody
from forge_client.errors import ClientError
from support.client.reaching import WAYS, reaching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_client.backend import Backend
    from support.queue.rig import Rig

SPEC: dict[str, Any] = {"name": "x", "owner": "ann", "command": ["ls"]}


@pytest.fixture(params=WAYS)
def backend(request: pytest.FixtureRequest, rig: Rig, tmp_path: Path) -> Iterator[Backend]:
    with reaching(request.param, rig, (tmp_path / "store").as_uri()) as client:
        yield client.backend


def test_a_job_that_no_online_worker_can_run_is_said_to_be_one(
    backend: Backend, rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.worker(cpus=2, memory_mb=4096, labels={"forge.runs": "projects"})
    (job,) = backend.submit([{**SPEC, "resources": {"gpus": 1}}])
    tell_job(backend.job(job))
    tell_nobody(backend, job)
    queued, nobody = capsys.readouterr().err.splitlines()
    gets = "1 GPU, a share of its worker's CPUs and memory, 10 GiB of disk"
    assert queued == f"job {job} 'x' is queued: {gets}"
    assert nobody.startswith("no online worker can run it: start another worker with 1 GPU")
    assert f"forge explain {job}" in nobody


def test_no_warning_for_a_job_that_a_worker_can_run_or_that_cannot_be_explained(
    backend: Backend, rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.worker(cpus=2, memory_mb=40_960, disk_mb=20_000, labels={"forge.runs": "projects"})
    (job,) = backend.submit([SPEC])
    tell_nobody(backend, job)
    with pytest.raises(ClientError):
        backend.explain(job + 1)
    tell_nobody(backend, job + 1)
    assert capsys.readouterr().err == ""
    # Also for somebody who has used no other, and of a job that has ended already.
    other = {**SPEC, "owner": "eve"}
    for spec, said in (
        (SPEC, "queue defualt is new; did you mean default?\n"),
        (SPEC, ""),
        (other, "queue defaults is new; did you mean default?\n"),
    ):
        queue = "defaults" if spec is other else "defualt"
        (job,) = backend.submit([{**spec, "queue": queue}])
        if spec is other:
            backend.cancel(job)
        tell_nobody(backend, job)
        assert capsys.readouterr().err == said


def test_what_is_named_is_told_as_named(backend: Backend) -> None:
    named = {"cpus": 2.5, "memory_mb": 8192, "disk_mb": 512, "gpus": 2, "gpu_model": "a100*"}
    (job,) = backend.submit([{**SPEC, "resources": {**named, "vram_mb": 40_960}}])
    said = resources(backend.job(job))
    assert said == "2 GPUs like a100* with 40 GiB, 2.5 CPUs, 8 GiB of memory, 512 MiB of disk"
