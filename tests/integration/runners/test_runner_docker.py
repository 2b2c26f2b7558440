"""What is particular to jobs that run in containers: the walls, and an engine that goes away."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import docker
import pytest
from forge_worker.runners.docker import container, network
from forge_worker.runners.docker.runner import DockerRunner, engine_answers
from forge_worker.runners.runner import ImageMissing, StartFailed
from support.engine.engine_proxy import engine_proxy
from support.engine.images import BASE_IMAGE
from support.engine.registry import empty_registry
from support.services import require
from support.workers.runners import (
    Bench,
    abandoned,
    docker_only,
    docker_runner,
    engine_kind,
    make_spec,
    needs_plain_registry,
    processes_with,
    require_docker,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import DockerClient
    from support.engine.engine_proxy import EngineProxy
    from support.waiting import Eventually

WAITS = "import signal; print('ready', flush=True); signal.pause()"
LEAVES_WITH_0 = """
import signal
signal.signal(signal.SIGTERM, lambda *_: exit(0))
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def engine() -> Iterator[DockerClient]:
    require_docker()
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProxy]:
    require_docker()
    with engine_proxy(tmp_path_factory.mktemp("p") / "s") as proxy:
        yield proxy


def exists(engine: DockerClient, name: str) -> bool:
    return bool(engine.containers.list(all=True, filters={"name": f"^/{name}$"}))


# The walls, as the job sees them.


def test_job_has_no_privileges_and_no_way_to_any(bench: Bench) -> None:
    job = bench.run("cat", "/proc/self/status")
    assert job.result().code == 0
    status = dict(line.split(":", 1) for line in job.output.decode().splitlines())
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    uids = set(status["Uid"].split())
    assert uids == {"65532" if os.geteuid() == 0 else str(os.geteuid())}


def test_job_can_write_to_its_folders_and_tmp_only(bench: Bench) -> None:
    job = bench.run(
        "sh",
        "-c",
        "for place in / /etc /usr /var /forge /root /forge/work /forge/output"
        " /forge/checkpoint /forge/control /tmp /dev/shm; do"
        " touch $place/x 2>/dev/null && echo $place; done; true",
    )
    assert job.result().code == 0
    folders = "/forge/work /forge/output /forge/checkpoint /forge/control"
    assert job.output.decode().split() == f"{folders} /tmp /dev/shm".split()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_link_out_of_a_folder_gives_nothing_away(bench: Bench) -> None:
    spec = make_spec(bench.root, ("stat", "-c", "%u", "own", "."))
    (bench.root / "outside").touch()
    (spec.work_dir / "link").symlink_to(bench.root / "outside")
    (spec.work_dir / "own").touch()
    job = bench.start(spec)
    assert job.result().code == 0
    assert job.output.split() == [b"65532", b"65532"]
    assert (bench.root / "outside").stat().st_uid == 0


def test_job_finds_no_engine_socket_and_no_host_device(bench: Bench) -> None:
    job = bench.run("sh", "-c", "ls /var/run/docker.sock /run/docker.sock /dev/kmsg /dev/sda")
    assert job.result().code != 0
    assert job.output.count(b"No such file") == 4


def test_number_of_processes_is_limited(tmp_path: Path) -> None:
    require_docker()
    bench = Bench(docker_runner(pids_limit=20), tmp_path)
    job = bench.python("""
import os, signal
try:
    for n in range(40):
        if os.fork() == 0: signal.pause()
except BlockingIOError:
    print("enough", flush=True)
""")
    try:
        assert job.result().code == 0
        assert job.output.startswith(b"enough\nforge: ")
    finally:
        bench.close()


def test_engine_is_asked_for_the_limits(bench: Bench, engine: DockerClient) -> None:
    job = bench.python(WAITS, cpus=0.5, memory_mb=256)
    host = engine.containers.get(job.spec.name).attrs["HostConfig"]
    assert host["NanoCpus"] == 500_000_000
    assert host["Memory"] == host["MemorySwap"] == 256 << 20
    assert host["ShmSize"] == 128 << 20
    assert host["Init"] is True
    assert host["Privileged"] is False
    networks = engine.containers.get(job.spec.name).attrs["NetworkSettings"]["Networks"]
    assert set(networks) == {job.spec.name if engine_kind().podman else network.NETWORK}
    assert host["DeviceRequests"] in (None, [])


def test_more_cpus_than_there_are_is_all_of_them(bench: Bench) -> None:
    assert bench.run("true", cpus=10_000).result().code == 0


def test_gpus_are_requested_by_uuid(bench: Bench) -> None:
    """No GPU is available here: the engine's error shows that one was requested."""
    docker_only("it ignores such a request, so it is not made")
    require(not Path("/dev/nvidiactl").exists(), "a machine without NVIDIA GPUs")
    with pytest.raises(StartFailed, match="capabilities: \\[\\[gpu\\]\\]"):
        bench.run("true", gpu_uuids=("GPU-6f2e",))


def test_image_that_wants_all_gpus_gets_none(bench: Bench) -> None:
    job = bench.run("sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"')
    job.result()
    assert job.output == b"void\n"


def test_container_carries_its_labels(bench: Bench, engine: DockerClient) -> None:
    job = bench.python(WAITS)
    labels = engine.containers.get(job.spec.name).labels
    assert labels.items() >= dict(job.spec.labels).items()


def test_secrets_of_the_agent_are_not_in_the_container(
    bench: Bench, engine: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_DATABASE_URL", "hush-hush")
    job = bench.python(WAITS)
    assert "hush-hush" not in json.dumps(engine.containers.get(job.spec.name).attrs)


# Images.


def test_missing_image_is_named_with_a_hint(tmp_path: Path) -> None:
    require_docker()
    bench = Bench(docker_runner(pull="never"), tmp_path)
    with pytest.raises(ImageMissing, match="forge-no-such") as refused:
        bench.run("true", image="forge-no-such:1")
    assert "pull" in refused.value.hint


def test_image_that_its_registry_does_not_have_is_missing(bench: Bench) -> None:
    needs_plain_registry()
    with (
        empty_registry() as registry,
        pytest.raises(ImageMissing, match=r"could not be pulled") as refused,
    ):
        bench.run("true", image=f"{registry}/forge-no-such:1")
    assert refused.value.hint


def test_registry_that_does_not_answer_is_no_missing_image(bench: Bench) -> None:
    with pytest.raises(StartFailed, match=r"could not be pulled"):
        bench.run("true", image="127.0.0.1:9/forge-no-such:1")


def test_registry_whose_name_is_not_known_is_no_missing_image(bench: Bench) -> None:
    with pytest.raises(StartFailed, match=r"could not be pulled"):
        bench.run("true", image="registry.invalid/forge-no-such:1")


def test_job_without_image_takes_the_workers_default(tmp_path: Path) -> None:
    require_docker()
    with pytest.raises(ImageMissing):
        Bench(docker_runner(), tmp_path).run("true", image=None)
    bench = Bench(docker_runner(default_image=BASE_IMAGE), tmp_path)
    try:
        assert bench.run("true", image=None).result().code == 0
    finally:
        bench.close()


class MakeImage(Protocol):
    """Makes a throw-away image, empty or the tests' own with Dockerfile lines; returns its name."""

    def __call__(self, *changes: str, empty: bool = False) -> str: ...


@pytest.fixture
def image(engine: DockerClient) -> Iterator[MakeImage]:
    made = []

    def make(*changes: str, empty: bool = False) -> str:
        name = f"forge-test-{uuid.uuid4().hex[:12]}"
        if empty:
            engine.api.import_image_from_data(bytes(10240), repository=name, tag="latest")
        else:
            base = engine.containers.create(BASE_IMAGE, "true")
            base.commit(repository=name, tag="latest", changes=list(changes))
            base.remove()
        made.append(name)
        return f"{name}:latest"

    yield make
    for name in made:
        engine.images.remove(name, force=True)


def test_entry_point_of_the_image_is_kept(bench: Bench, image: MakeImage) -> None:
    name = image('ENTRYPOINT ["/usr/bin/env", "FROM_ENTRYPOINT=1"]', "ENV LANG=C")
    job = bench.run("sh", "-c", "echo $FROM_ENTRYPOINT $LANG", image=name)
    assert job.result().code == 0
    assert job.output == b"1 C\n"


def test_image_without_a_shell_says_so_in_the_log(bench: Bench, image: MakeImage) -> None:
    job = bench.run("true", image=image(empty=True))
    assert job.result().code == (1 if engine_kind().podman else 127)
    assert (b"failed to exec" if engine_kind().podman else b"/bin/sh") in job.output


# An agent that dies, an engine that goes away, somebody who uses it.


@pytest.mark.parametrize("ahead_s", [0, 3600])
def test_a_container_that_somebody_stops_has_not_ended_by_itself(
    bench: Bench, engine: DockerClient, ahead_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So with `docker stop $(docker ps -q)`: a job may save its state and exit with 0 then."""
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead_s)
    job = bench.python(LEAVES_WITH_0)
    job.expect(b"ready")
    engine.api.kill(job.spec.name, signal.SIGWINCH)
    engine.api.stop(job.spec.name)
    ended = job.result()
    if engine_kind().podman:
        assert ended.code == 0
    else:
        assert (ended.code, ended.detail) == (
            None,
            "somebody stopped its container by the engine (SIGTERM)",
        )


def test_killed_agents_container_is_found_and_reaped(bench: Bench, engine: DockerClient) -> None:
    token = uuid.uuid4().hex
    spec = make_spec(bench.root, ("python3", "-c", WAITS, token))
    with abandoned("docker", spec, b"ready"):
        assert processes_with(token)
        assert bench.runner.leftovers("another folder") == []
        (found,) = bench.runner.leftovers(spec.labels["forge.folder"])
        assert found.name == spec.name
        assert found.labels.items() >= dict(spec.labels).items()
        bench.runner.reap(found)
        assert processes_with(token) == []
        assert not exists(engine, spec.name)
        assert not list(spec.log_path.parent.glob("*.pipe"))
        bench.runner.reap(found)


def test_job_of_a_killed_agent_is_not_killed_by_its_own_output(
    bench: Bench, engine: DockerClient
) -> None:
    prints = "print('ready', flush=True)\nwhile True: print('x' * 65536)"
    token = uuid.uuid4().hex
    spec = make_spec(bench.root, ("python3", "-c", prints, token))
    with abandoned("docker", spec, b"ready"):
        assert processes_with(token)
        (found,) = bench.runner.leftovers(spec.labels["forge.folder"])
        assert engine.containers.get(found.id).status == "running"


def test_container_from_a_start_whose_answer_was_lost_is_replaced(
    bench: Bench, engine: DockerClient
) -> None:
    spec = make_spec(bench.root, ("echo", "mine"))
    engine.containers.create(BASE_IMAGE, "true", name=spec.name)
    job = bench.start(spec)
    assert job.result().code == 0
    assert job.output == b"mine\n"


def test_container_that_somebody_removed_has_no_code(bench: Bench, engine: DockerClient) -> None:
    job = bench.python(WAITS)
    job.expect(b"ready")
    engine.containers.get(job.spec.name).remove(force=True)
    assert job.result().code is None
    job.handle.stop()
    job.handle.remove()


def test_engine_away_for_a_while_changes_nothing(proxy: EngineProxy, bench: Bench) -> None:
    job = bench.python(
        "import os\nprint('ready', flush=True)\nwhile not os.path.exists('go'): pass\nexit(5)"
    )
    job.expect(b"ready")
    proxy.shut()
    assert job.handle.wait(1) is None
    proxy.open()
    assert job.handle.wait(1) is None
    (job.spec.work_dir / "go").touch()
    assert job.result().code == 5


def test_code_of_a_job_that_ended_with_the_engine_is_void(
    proxy: EngineProxy, bench: Bench, eventually: Eventually
) -> None:
    """A stopping engine sends SIGTERM, on which a well-behaved job exits with 0."""
    docker_only("its containers outlive it")
    job = bench.python(LEAVES_WITH_0)
    job.expect(b"ready")
    assert job.handle.wait(0) is None
    proxy.shut()
    assert job.handle.wait(0.2) is None
    with closing(docker.DockerClient(base_url=proxy.engine)) as direct:
        direct.containers.get(job.spec.name).kill(signal.SIGTERM)
        eventually(lambda: direct.containers.get(job.spec.name).status == "exited")
    proxy.open()
    ended = job.result()
    assert ended.code is None
    assert "code 0" in ended.detail


def test_job_goes_on_while_the_engine_is_away_for_long(
    proxy: EngineProxy, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "ENGINE_PATIENCE_S", 0.1)
    job = bench.python(WAITS)
    job.expect(b"ready")
    assert job.handle.wait(0) is None
    proxy.shut()
    assert job.handle.wait(1) is None
    proxy.open()
    assert job.handle.wait(0) is None


def test_job_that_ends_while_the_engine_is_away_for_good_has_no_code(
    proxy: EngineProxy, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "ENGINE_PATIENCE_S", 0.5)
    ends = "import os\nprint('ready', flush=True)\nwhile not os.path.exists('go'): pass"
    job = bench.python(ends)
    job.expect(b"ready")
    assert job.handle.wait(0) is None
    proxy.shut()
    (job.spec.work_dir / "go").touch()
    ended = job.result()
    assert ended.code is None
    assert "ended while the container engine did not answer" in ended.detail
    proxy.open()


@pytest.mark.parametrize("way", ["stop", "remove"])
def test_job_is_ended_without_the_engine(
    engine: DockerClient, proxy: EngineProxy, way: str, tmp_path: Path
) -> None:
    runner, token = docker_runner(), uuid.uuid4().hex
    bench = Bench(runner, tmp_path)
    job = bench.run("python3", "-c", LEAVES_WITH_0, token)
    job.expect(b"ready")
    assert job.handle.wait(0) is None
    proxy.shut()
    getattr(job.handle, way)()
    assert processes_with(token) == []
    assert job.result().code is None
    job.handle.remove()
    assert not runner.containers.may_live(job.spec.name)
    assert exists(engine, job.spec.name)
    proxy.open()
    runner.reap_strays()
    assert not exists(engine, job.spec.name)
    assert runner.containers.remaining == set()


def test_only_the_agents_own_unused_containers_are_strays(
    bench: Bench, engine: DockerClient, tmp_path: Path
) -> None:
    mine, other = bench.python(WAITS), Bench(docker_runner(), tmp_path / "other")
    others = other.python(WAITS, labels=mine.spec.labels)
    assert isinstance(bench.runner, DockerRunner)
    bench.runner.reap_strays()
    assert exists(engine, mine.spec.name)
    assert exists(engine, others.spec.name)
    other.close()


def test_engine_that_is_not_there_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    assert not engine_answers()
    with pytest.raises(StartFailed, match="does not answer"):
        Bench(docker_runner(), tmp_path).run("true")


def test_engine_that_hangs_does_not_answer(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path_factory.mktemp("e") / "s"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        assert not engine_answers()


def test_engine_answers() -> None:
    require_docker()
    assert engine_answers()
