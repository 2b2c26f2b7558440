"""A bench that runs tests' jobs with one runner, and cleans up."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import psutil
import pytest
from forge_worker.runners.docker.runner import DockerPolicy, DockerRunner
from forge_worker.runners.engines import EngineKind, kind_of
from forge_worker.runners.process.runner import ProcessRunner
from forge_worker.runners.runner import FOLDER_LABEL, WORKER_LABEL, Exit, Handle, Runner, RunSpec
from support.engine.images import BASE_IMAGE
from support.services import docker_answers, require
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_S = 60.0
# All runners keep one contract.
KINDS = ["process", "docker"]


@cache
def base_image_is_here() -> bool:
    """Tell whether the engine has the tests' image."""
    return docker_answers() and not subprocess.call(
        ["docker", "image", "inspect", BASE_IMAGE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def require_docker() -> None:
    """Continue only with an engine that has the tests' image."""
    require(docker_answers(), "a Docker engine")
    require(base_image_is_here(), f"the image {BASE_IMAGE} (.ci/base-image.sh makes it)")


@cache
def engine_kind() -> EngineKind:
    """Return what the engine is."""
    require_docker()
    with closing(docker.from_env()) as client:
        return kind_of(client.info())


def needs_limits(bench: Bench) -> None:
    """Skip the rest of a test on an engine that limits no memory: a job would take all there is."""
    if bench.runner.kind == "docker" and not engine_kind().limits:
        pytest.skip("a rootless engine limits nothing on control groups v1")


def docker_only(why: str) -> None:
    """Continue only with Docker; `why` says what Podman has instead."""
    if engine_kind().podman:
        pytest.skip(f"Podman: {why}")


def needs_plain_registry() -> None:
    """Continue only with an engine that takes a registry on loopback without TLS."""
    if engine_kind().containerd:
        pytest.skip("containerd's image store takes no registry without TLS")


def make_runner(kind: str) -> Runner:
    """Return a runner with its default settings."""
    return ProcessRunner() if kind == "process" else docker_runner()


def docker_runner(**changes: Any) -> DockerRunner:  # noqa: ANN401  fields of all types
    """Return a runner with its default settings, but for what this user and engine cannot have.

    `changes` are fields of its policy.
    """
    require_docker()
    network = os.environ.get("FORGE_TEST_NETWORK", "bridge")
    # Only root can keep containers from the metadata addresses.
    here = {
        "network": "none" if network == "none" else "bridge",
        "allow_metadata": os.geteuid() != 0,
    }
    return DockerRunner(DockerPolicy(**{**here, **changes}))


def make_spec(root: Path, command: tuple[str, ...], **changes: Any) -> RunSpec:  # noqa: ANN401  fields of all types
    """Return a small job with folders in `root` and a grace of 20 s."""
    name = changes.setdefault("name", f"forge-test-{uuid.uuid4().hex[:16]}")
    places = {
        folder: root / name / folder
        for folder in ("work_dir", "output_dir", "checkpoint_dir", "control_dir")
    }
    for place in places.values():
        place.mkdir(parents=True)
    spec = RunSpec(
        command=command,
        env={},
        log_path=root / name / "log",
        image=BASE_IMAGE,
        cpus=1,
        memory_mb=512,
        gpu_uuids=(),
        grace_s=20,
        labels={WORKER_LABEL: "desk", FOLDER_LABEL: f"folder of {name}", "forge.job": "1"},
        **places,
        name=name,
    )
    return replace(spec, **{key: value for key, value in changes.items() if key != "name"})


@dataclass
class Job:
    """A started job, and queries about it."""

    spec: RunSpec
    handle: Handle

    def result(self, timeout: float = LONG_S) -> Exit:
        """Return the exit, which must arrive within `timeout` seconds."""
        ended = self.handle.wait(timeout)
        assert ended is not None, f"still running after {timeout:g} s"
        return ended

    @property
    def output(self) -> bytes:
        """Everything that the job has printed so far."""
        return self.spec.log_path.read_bytes()

    def expect(self, text: bytes) -> None:
        """Wait until the job has printed `text`."""
        eventually(lambda: text in self.output)


@dataclass
class Bench:
    """Starts jobs below `root`."""

    runner: Runner
    root: Path
    jobs: list[Job] = field(default_factory=list)

    def run(self, *command: str, **changes: Any) -> Job:  # noqa: ANN401  fields of all types
        """Start a command; `changes` are fields of its RunSpec."""
        return self.start(make_spec(self.root, command, **changes))

    def python(self, source: str, *arguments: str, **changes: Any) -> Job:  # noqa: ANN401  fields of all types
        """Start a Python program, given as its source."""
        return self.run(self.interpreter, "-c", source, *arguments, **changes)

    @property
    def interpreter(self) -> str:
        """The Python that this runner's jobs find."""
        return "python3" if self.runner.kind == "docker" else sys.executable

    def start(self, spec: RunSpec) -> Job:
        """Start the job in `spec`."""
        job = Job(spec, self.runner.start(spec))
        self.jobs.append(job)
        return job

    def close(self) -> None:
        """Remove every job, and print its output, which pytest shows beside a failure."""
        for job in self.jobs:
            job.handle.remove()
            if job.spec.log_path.is_file():
                print(job.output[-2000:].decode(errors="replace"))  # noqa: T201  for people


@contextmanager
def sandboxes_for(bench: Bench, jobs: int) -> Iterator[None]:
    """Have sandboxes wait for jobs, all of which must be taken at the end; remove the jobs."""
    runner, folder = bench.runner, uuid.uuid4().hex
    assert isinstance(runner, DockerRunner)
    assert runner.obstacle() == ""
    for _ in range(jobs):
        runner.sandboxes.make(folder)
    try:
        yield
        assert runner.sandboxes.ready == 0
    finally:
        bench.close()
        runner.sandboxes.end(folder)


def processes_with(token: str, status: str | None = None) -> list[int]:
    """Return the machine's live processes that name `token`, those in containers too.

    Only those with a psutil `status`, if one is given.
    """
    return [
        process.info["pid"]
        for process in psutil.process_iter(["pid", "cmdline", "status"])
        if process.info["pid"] != os.getpid()
        and process.info["status"] == (status or process.info["status"])
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and any(token in word for word in process.info["cmdline"] or [])
    ]


@contextmanager
def abandoned(kind: str, spec: RunSpec, ready: bytes) -> Iterator[None]:
    """Have another process start the job, and kill that process once the job printed `ready`."""
    packed = spec.log_path.with_name("spec")
    packed.write_bytes(pickle.dumps(replace(spec, env=dict(spec.env), labels=dict(spec.labels))))
    folder = Path(__file__).parent
    driver = subprocess.Popen(
        [sys.executable, str(folder / "abandon.py"), kind, str(packed)],
        env={**os.environ, "PYTHONPATH": str(folder.parents[1])},
    )
    try:
        eventually(lambda: spec.log_path.exists() and ready in spec.log_path.read_bytes())
    finally:
        driver.kill()
        driver.wait()
    try:
        yield
    finally:
        runner = make_runner(kind)
        for leftover in runner.leftovers(spec.labels[FOLDER_LABEL]):
            runner.reap(leftover)
