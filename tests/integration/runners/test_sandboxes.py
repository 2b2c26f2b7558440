"""Sandboxes: each job has a fresh network, and none outlives its job or its agent."""

from __future__ import annotations

import json
import subprocess
import uuid
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import docker
import pytest
from docker import APIClient
from docker.errors import APIError, NotFound
from forge_worker.runners import entry
from forge_worker.runners.docker import sandboxes
from forge_worker.runners.docker.pause import pause_image
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.docker.sandboxes import (
    FOLDER_OF_SANDBOX,
    SANDBOX_LABEL,
    Sandbox,
    SandboxPool,
)
from forge_worker.runners.runner import FOLDER_LABEL, Mount, StartFailed
from support.waiting import eventually
from support.workers.runners import Bench, Job, docker_only, docker_runner, engine_kind, make_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient
    from docker.models.containers import Container

# Its network namespace, names and interfaces; and its own name must lead to itself.
TELLS = """
import json, os, signal, socket
with socket.create_server((socket.gethostname(), 0)) as door:
    socket.create_connection(door.getsockname()).close()
print(json.dumps({
    "namespace": os.readlink("/proc/self/ns/net"),
    "hostname": socket.gethostname(),
    "interfaces": sorted(os.listdir("/sys/class/net")),
    "names": open("/etc/resolv.conf").read(),
}), flush=True)
signal.pause()
"""
WAITS = "import signal; print('up', flush=True); signal.pause()"


class Yard:
    """The sandboxes of one worker's folder."""

    def __init__(self, engine: DockerClient, bench: Bench) -> None:
        assert isinstance(bench.runner, DockerRunner)
        self.engine = engine
        self.folder = uuid.uuid4().hex
        self.sandboxes = bench.runner.sandboxes
        self.pool = self.another_pool(bench.runner)

    def another_pool(self, runner: DockerRunner, wanted: int = 1) -> SandboxPool:
        return SandboxPool(runner, self.folder, lambda: wanted)

    def make(self) -> None:
        self.sandboxes.make(self.folder)

    def there(self) -> list[Container]:
        own = {"label": f"{FOLDER_OF_SANDBOX}={self.folder}"}
        found: list[Container] = []
        for one in self.engine.api.containers(all=True, filters=own):
            # One that is just removed: 404 with Docker, 500 with Podman.
            with suppress(APIError):
                found.append(self.engine.containers.get(one["Id"]))
        return found

    def of(self, job: Job) -> str:
        """Return the name of a job's sandbox, or ""."""
        labels = self.engine.containers.get(job.spec.name).labels
        named: str = labels[SANDBOX_LABEL]
        return named

    def kill(self) -> None:
        for one in self.there():
            one.kill()


@pytest.fixture
def yard(bench: Bench) -> Iterator[Yard]:
    assert isinstance(bench.runner, DockerRunner)
    assert bench.runner.obstacle() == ""
    with closing(docker.from_env()) as engine:
        made = Yard(engine, bench)
        yield made
        bench.close()
        made.sandboxes.end(made.folder)
        assert made.there() == []


def told(job: Job) -> dict[str, Any]:
    eventually(lambda: job.output.endswith(b"\n"))
    said: dict[str, Any] = json.loads(job.output)
    return said


def test_each_job_has_a_sandbox_of_its_own_that_goes_with_it(bench: Bench, yard: Yard) -> None:
    yard.make()
    yard.make()
    jobs = [bench.python(TELLS) for _ in range(3)]
    *inside, without = map(told, jobs)
    names = [yard.of(job) for job in jobs]
    assert {one.name for one in yard.there()} == set(names[:2])
    assert [one["hostname"] for one in inside] == names[:2]
    assert names[2] == ""
    namespaces = {
        str(Path("/proc/self/ns/net").readlink()),
        *(one["namespace"] for one in (*inside, without)),
    }
    assert len(namespaces) == 4
    for one in inside:
        assert one["interfaces"] == without["interfaces"] == ["eth0", "lo"]
        # With Podman, the server for names is at the network's own address.
        assert engine_kind().podman or one["names"] == without["names"]
    jobs[0].handle.remove()
    yard.sandboxes.tidy(yard.folder)
    assert [one.name for one in yard.there()] == [names[1]]


def test_shell_finds_the_job_and_not_its_sandbox(bench: Bench, yard: Yard) -> None:
    yard.make()
    job = bench.python(WAITS)
    job.expect(b"up")
    found = entry.find({FOLDER_LABEL: job.spec.labels[FOLDER_LABEL]})
    assert isinstance(found, entry.Container)
    words = found.program(("hostname",), {}, tty=False).command
    assert subprocess.check_output(words, text=True).strip() == yard.of(job)


def test_sandbox_that_was_killed_costs_no_job_its_start(
    bench: Bench, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.make()
    yard.kill()
    eventually(lambda: yard.sandboxes.ready == 0)
    assert bench.run("true").result().code == 0
    yard.sandboxes.tidy(yard.folder)
    assert yard.there() == []
    # An agent that does not see the sandbox's process learns of its end from the engine.
    yard.make()
    yard.kill()
    (dead,) = eventually(lambda: [one for one in yard.there() if one.status == "exited"])
    monkeypatch.setattr(Sandbox, "ended", False)
    job = bench.run("cat", "/proc/1/comm")
    assert job.result().code == 0, job.output
    # Podman starts it again for the job.
    assert yard.of(job) == (dead.name if engine_kind().podman else "")
    assert yard.sandboxes.ready == 0
    job.handle.remove()
    yard.sandboxes.tidy(yard.folder)
    with pytest.raises(NotFound):
        dead.reload()


def test_job_that_cannot_start_in_a_good_sandbox_is_not_started_again(
    bench: Bench, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_only("crun mounts over /proc/1, which runc refuses")
    yard.make()
    spec = make_spec(bench.root, ("true",))
    broken = replace(spec, mounts=(Mount(spec.work_dir, PurePosixPath("/proc/1")),))
    asked: list[str] = []
    starts = APIClient.start

    def start(self: APIClient, container: str) -> None:
        asked.append(container)
        starts(self, container)

    monkeypatch.setattr(APIClient, "start", start)
    with pytest.raises(StartFailed):
        bench.runner.start(broken)
    assert len(asked) == 1
    yard.sandboxes.tidy(yard.folder)
    assert yard.there() == []


def test_pool_keeps_some_ready_and_leaves_none_behind(bench: Bench, yard: Yard) -> None:
    earlier = docker_runner()
    earlier.sandboxes.make(yard.folder)
    (left,) = yard.there()
    yard.pool.start()
    eventually(lambda: yard.sandboxes.ready == 1)
    with pytest.raises(NotFound):
        left.reload()
    job = bench.python(WAITS)
    used = yard.of(job)
    assert used != ""
    eventually(lambda: yard.sandboxes.ready == 1)
    assert len(yard.there()) == 2
    job.handle.remove()
    eventually(lambda: used not in [one.name for one in yard.there()])
    assert yard.sandboxes.ready == 1
    yard.pool.end()
    assert yard.there() == []


def test_sandbox_of_a_job_that_goes_on_is_kept_by_the_next_agent(bench: Bench, yard: Yard) -> None:
    yard.make()
    job = bench.python(WAITS)
    job.expect(b"up")
    yard.make()
    successor = docker_runner()
    (found,) = successor.leftovers(job.spec.labels[FOLDER_LABEL])
    handle = successor.adopt(found, job.spec.log_path, 1)
    assert handle is not None
    successor.sandboxes.tidy(yard.folder)
    assert [one.name for one in yard.there()] == [yard.of(job)]
    handle.remove()
    assert successor.sandboxes.changed.is_set()
    successor.sandboxes.tidy(yard.folder)
    assert yard.there() == []


def test_pool_bears_an_engine_that_is_away(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as away:
        away.setenv("DOCKER_HOST", f"unix:///{uuid.uuid4().hex}")
        yard.pool.step()
        assert yard.sandboxes.ready == 0
    yard.pool.step()
    assert yard.sandboxes.ready == 1


def test_sandbox_ends_when_an_engine_that_stops_asks_it_to(yard: Yard) -> None:
    yard.make()
    (made,) = yard.there()
    # Its first process would ignore a signal that it does not handle, and then be killed: 137.
    made.stop(timeout=60)
    assert made.wait()["StatusCode"] == 0


def test_machine_without_a_pause_program_has_no_sandboxes(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "pause_image", lambda: pause_image("riscv64"))
    yard.pool.step()
    assert yard.there() == []
