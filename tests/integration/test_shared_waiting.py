"""The runner that has small jobs share containers: which wait, which end, which are left."""

from __future__ import annotations

import subprocess
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from forge_worker.runners.runner import WORKER_LABEL, StartFailed
from forge_worker.runners.shared import SharingDockerRunner
from forge_worker.runners.shared_container import SharedContainer
from support.runners import Bench, Job, make_spec, require_docker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from forge_worker.runners.runner import RunSpec
    from support.waiting import Eventually

WORKER = f"sharing-{uuid.uuid4().hex[:12]}"
# The job itself is spared, and ends with the container.
KILLS = "import os, signal; os.kill(-1, signal.SIGKILL); signal.pause()"


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    require_docker()
    tmp_path.chmod(0o755)
    runner = SharingDockerRunner(idle_s=getattr(request, "param", 60))
    bench = Bench(runner, tmp_path)
    yield bench
    bench.close()
    runner.close()


def shared_spec(bench: Bench, *command: str) -> RunSpec:
    spec = make_spec(bench.root, command, labels={WORKER_LABEL: WORKER})
    return replace(spec, share=bench.root)


def run(bench: Bench, *command: str) -> Job:
    return bench.start(shared_spec(bench, *command))


def containers() -> list[str]:
    label = f"label={WORKER_LABEL}={WORKER}"
    return subprocess.check_output(["docker", "ps", "-aq", "--filter", label], text=True).split()


def test_a_job_that_cannot_be_handed_over_leaves_no_container(bench: Bench) -> None:
    assert run(bench, "true").result().code == 0
    assert len(containers()) == 1
    # In the container that waits, then in one of its own.
    for _ in range(2):
        spec = shared_spec(bench, "true")
        (spec.control_dir / "tmp").write_text("no folder")
        with pytest.raises(StartFailed, match="exists"):
            bench.start(spec)
        assert containers() == []
    assert run(bench, "true").result().code == 0


def test_a_container_that_ends_under_its_job_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What an engine answers, as if nothing were wrong, before it knows itself.
    early = [b"cannot exec in a stopped state: unknown\r\n", b"container is not running\r\n"]
    say = SharedContainer._say

    def says_early(container: SharedContainer, words: list[str]) -> bytes:
        return early.pop() if early else say(container, words)

    monkeypatch.setattr(SharedContainer, "_say", says_early)
    for _ in range(2):
        ended = run(bench, bench.interpreter, "-c", KILLS).result()
        assert (ended.code, ended.detail) == (None, "the container ended under the job")
    assert containers() == []
    early = [b"no more than a hiccup"]
    assert run(bench, "sh", "-c", "exit 3").result().code == 3
    assert len(containers()) == 1


@pytest.mark.parametrize("bench", [1], indirect=True)
def test_each_container_waits_for_itself_and_not_for_long(
    bench: Bench, eventually: Eventually
) -> None:
    jobs = [run(bench, "sleep", "0.5"), run(bench, "sleep", "1.2")]
    for job in jobs:
        assert job.result().code == 0
    # The next one comes to one that waits, and is not disturbed when its time would be over.
    assert run(bench, "sleep", "2").result().code == 0
    eventually(lambda: containers() == [])
    assert run(bench, "true").result().code == 0
    assert len(containers()) == 1
    eventually(lambda: containers() == [])
