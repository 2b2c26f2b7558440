"""Resources lent to a job are released only when none of its processes is alive."""

from __future__ import annotations

import os
import uuid
from threading import Event
from typing import TYPE_CHECKING, Any

from forge_schema.model.lease import Fence, Grant
from forge_schema.model.worker import Capacity
from forge_worker.agent.jobs import Reaper
from forge_worker.attempt import LiveAttempt
from forge_worker.attempt_folders import Folders
from forge_worker.job_runs.job_environment import container_name
from forge_worker.machine.slots import MachineSlot, Slots
from forge_worker.runners.docker.container import MainProcess
from forge_worker.runners.docker.runner import DockerRunner
from support.workers.runners import require_docker

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GRANTED: dict[str, Any] = {
    "name": "job",
    "owner": "ann",
    "bundle_digest": None,
    "timeout_s": None,
    **dict.fromkeys(("lane_id", "priority", "failures", "losses", "preemptions"), 0),
}


def ended(root: Path, slots: Slots) -> LiveAttempt:
    """Return an attempt that has ended, but still has a slot and folders."""
    fence = Fence(7, 9, uuid.uuid4())
    grant = Grant(fence.job_id, fence.token, fence.nonce, attempt=1, spec={}, **GRANTED)
    attempt = LiveAttempt(grant, Folders(root / "job"))
    attempt.folders.make()
    slots.lend(fence.token, Capacity(1, 1, 1))
    return attempt


def test_slot_and_folders_are_kept_while_the_engine_cannot_say_that_the_container_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_docker()
    slots, docker = Slots(Capacity(1, 1, 1), max_jobs=1), DockerRunner()
    attempt, reaper = ended(tmp_path, slots), Reaper(docker, slots)
    docker.containers.remains(container_name(attempt), None)
    with monkeypatch.context() as away:
        away.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
        reaper.let_go(attempt)
        reaper.step()
        assert reaper.keeps
        assert slots.jobs == 1
        assert attempt.folders.work.is_dir()
    reaper.step()
    assert not reaper.keeps
    assert slots.jobs == 0
    assert not attempt.folders.root.exists()


def test_slot_comes_back_without_the_engine_once_the_kernel_says_that_nothing_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    slots, docker = Slots(Capacity(1, 1, 1), max_jobs=1), DockerRunner()
    attempt, reaper = ended(tmp_path, slots), Reaper(docker, slots)
    child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    docker.containers.remains(container_name(attempt), MainProcess(os.pidfd_open(child), child))
    reaper.let_go(attempt)
    assert slots.jobs == 0
    assert not attempt.folders.root.exists()
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_job_that_has_ended_keeps_its_slot_while_its_container_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    slots, docker, freed = Slots(Capacity(1, 1, 1), max_jobs=1), DockerRunner(), Event()
    attempt, reaper = ended(tmp_path, slots), Reaper(docker, slots, freed=freed)
    docker.containers.remains(container_name(attempt), None)
    (attempt.folders.output / "file").touch()
    reaper.ended(attempt)
    assert slots.lent[attempt.fence.token].cpus == 1
    assert not freed.is_set()
    docker.containers.gone(container_name(attempt))
    reaper.ended(attempt)
    assert slots.lent[attempt.fence.token] == MachineSlot(0, 0, 1)
    assert freed.is_set()
