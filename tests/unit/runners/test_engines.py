"""What an engine is and where: real answers of engines that CI does not have, cut short."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError
from forge_worker.commands import doctor, join
from forge_worker.runners import engines, entry
from forge_worker.runners.docker.container import Created
from forge_worker.runners.docker.engine import Engine, EngineRun, engine_answers, engine_run
from forge_worker.runners.docker.mounts import MountRefused, extra_mounts
from forge_worker.runners.docker.runner import DockerPolicy, DockerRunner
from forge_worker.runners.docker.sandboxes import Sandbox
from forge_worker.runners.engines import EngineKind, check_fit, kind_of
from forge_worker.runners.images.building import BuildOutput
from forge_worker.runners.images.reference import ImageRefused
from forge_worker.runners.runner import StartFailed
from support.answering import answering

DOCKER_20 = {
    "ServerVersion": "20.10.24+dfsg1",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "DriverStatus": [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]],
    "LiveRestoreEnabled": False,
}
DOCKER_26 = {**DOCKER_20, "ServerVersion": "26.1.5+dfsg1", "CDISpecDirs": []}
DOCKER_28 = {
    **DOCKER_20,
    "ServerVersion": "28.5.2+dfsg3",
    "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
}
ROOTLESS_DOCKER = {
    **DOCKER_26,
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"],
}
REMAPPING_DOCKER = {**DOCKER_26, "SecurityOptions": ["name=seccomp,profile=builtin", "name=userns"]}
PODMAN_5 = {
    "ServerVersion": "5.4.2",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "DriverStatus": [["Backing Filesystem", "extfs"], ["Supports d_type", "true"]],
    "LiveRestoreEnabled": False,
    "CDISpecDirs": None,
    "BuildahVersion": "1.39.3",
    "Rootless": False,
}
ROOTLESS_PODMAN = {
    **PODMAN_5,
    "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
    "Rootless": True,
}
TOO_OLD = {
    "message": "client version 1.41 is too old. Minimum supported API version is 1.44, please"
    " upgrade your client to a newer version"
}
CDI = (Path("/etc/cdi"), Path("/var/run/cdi"))


@pytest.mark.parametrize(
    ("info", "kind", "said"),
    [
        (DOCKER_20, EngineKind(version="20.10.24+dfsg1"), "Docker 20.10.24+dfsg1"),
        (DOCKER_26, EngineKind(version="26.1.5+dfsg1"), "Docker 26.1.5+dfsg1"),
        (
            DOCKER_28,
            EngineKind(version="28.5.2+dfsg3", containerd=True, cdi=CDI),
            "Docker 28.5.2+dfsg3",
        ),
        (
            ROOTLESS_DOCKER,
            EngineKind(version="26.1.5+dfsg1", rootless=True),
            "rootless Docker 26.1.5+",
        ),
        (REMAPPING_DOCKER, EngineKind(version="26.1.5+dfsg1", remaps=True), "Docker 26.1.5+"),
        (PODMAN_5, EngineKind("Podman", "5.4.2", cdi=CDI), "Podman 5.4.2"),
        (
            ROOTLESS_PODMAN,
            EngineKind("Podman", "5.4.2", rootless=True, cdi=CDI),
            "rootless Podman 5.4.2",
        ),
        (
            {**ROOTLESS_PODMAN, "CgroupVersion": "1"},
            EngineKind("Podman", "5.4.2", rootless=True, limits=False, cdi=CDI),
            "rootless Podman 5.4.2",
        ),
        ({}, EngineKind(), "Docker"),
    ],
)
def test_engine_is_known_by_its_own_words(
    info: dict[str, Any], kind: EngineKind, said: str
) -> None:
    assert kind_of(info) == kind
    assert str(kind).startswith(said)
    assert kind.separates is ("Podman" not in said)


DOCKER_RUN = EngineRun("2:9", keeps=True)


class Fixed:
    """An engine with one answer."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.client = self
        self._info = info

    def info(self) -> dict[str, Any]:
        return self._info


def test_containers_of_podman_outlive_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else the code of a job would be void that ended while its agent was away."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    runs = [engine_run(Fixed(info)) for info in (PODMAN_5, DOCKER_26)]  # type: ignore[arg-type]  # all it asks
    assert runs == [EngineRun("", keeps=True, watches=True), EngineRun("", keeps=False)]
    assert [run.vouches(run, 0) for run in runs] == [True, False]


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's Docker contexts, of which `rootless` is in use."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "docker"
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    make_context(folder, "rootless", f"unix://{tmp_path}/run/docker.sock")
    (folder / "config.json").write_text('{"currentContext": "rootless"}')
    return folder


def make_context(folder: Path, name: str, host: str) -> None:
    place = folder / "contexts" / "meta" / sha256(name.encode()).hexdigest()
    place.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": False}
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}
    (place / "meta.json").write_text(json.dumps(meta))


def test_docker_context_is_followed_by_every_part(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    assert engines.address() == f"unix://{tmp_path}/run/docker.sock"
    assert engines.socket_path() == tmp_path / "run" / "docker.sock"
    with pytest.raises(FileNotFoundError):
        engines.knock()
    assert not engine_answers()
    _, fault, _ = doctor.engine_found()
    assert f"unix://{tmp_path}/run/docker.sock" in fault
    with pytest.raises(MountRefused, match="socket of a container engine"):
        extra_mounts([f"{tmp_path}/run:/data"], tmp_path / "worker")
    assert join._has_context()
    # A switch moves no worker that runs: its jobs are where it began.
    (docker_config / "config.json").write_text("{}")
    assert engines.address() == f"unix://{tmp_path}/run/docker.sock"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert engines.address() == engines.DEFAULT_HOST
    monkeypatch.setenv("DOCKER_HOST", "unix:///of/the/environment")
    assert engines.socket_path() == Path("/of/the/environment")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    assert engines.socket_path() is None
    monkeypatch.setenv("DOCKER_HOST", "")
    assert engines.address() == engines.DEFAULT_HOST


class Docker29(BaseHTTPRequestHandler):
    """Refuses versions below 1.44, in the words of Docker 28.5.2 with that minimum."""

    def do_GET(self) -> None:
        old = self.path.startswith("/v1.") and int(self.path.split("/")[1][3:]) < 44
        said = TOO_OLD if old else {"Os": "linux", "ApiVersion": "1.52", "MinAPIVersion": "1.44"}
        body = json.dumps(said).encode()
        self.send_response(400 if old else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return ""

    def log_message(self, *_: object) -> None:
        """Keep the tests' output quiet."""


def test_engine_that_refuses_old_versions_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with UnixStreamServer(f"{tmp_path}/s", Docker29) as server:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        with answering(server):
            assert engine_answers()
            assert Engine().client.api.api_version == "1.52"


@pytest.mark.parametrize("meta", [None, "{broken"])
def test_context_that_leads_nowhere_is_not_replaced_by_another_engine(
    docker_config: Path, meta: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    if meta is not None:
        make_context(docker_config, "gone", "unix:///x")
        next(docker_config.rglob(f"{sha256(b'gone').hexdigest()}/meta.json")).write_text(meta)
    assert not engine_answers()
    _, fault, remedy = doctor.engine_found()
    assert "the Docker context gone" in fault
    assert "docker context use" in remedy
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/no/such")
    assert not engine_answers()
    assert "/no/such has not all of ca.pem" in doctor.engine_found()[1]


@pytest.mark.parametrize(
    "refusal",
    [
        # 26.1.5
        "cannot join network of a non running container: 7f3a1c",
        # 28.5.2
        "cannot join network namespace of a non running container: container forge-sandbox-98 is",
    ],
)
def test_dead_sandbox_is_known_by_its_id_or_its_name(refusal: str) -> None:
    sandbox = Sandbox("7f3a1c", "forge-sandbox-98", None)
    assert sandbox.broke(RuntimeError(refusal))
    assert not sandbox.broke(RuntimeError("no space left on device"))


@pytest.mark.parametrize(
    "printed",
    [
        # Docker 20.10.24
        ["Step 2/2 : RUN x\n", " ---> Running in c61d84\n", "so it is\n",
         "Removing intermediate container c61d843837b9\n"],
        # Docker 26.1.5
        ["Step 2/2 : RUN x\n", " ---> Running in c61d84\n", "so it is\n",
         " ---> Removed intermediate container c61d843837b9\n"],
    ],
)  # fmt: skip
def test_last_words_of_a_build_are_its_own(printed: list[str]) -> None:
    said: list[str] = []
    output = BuildOutput(said.append)
    for line in printed:
        output.hear({"stream": line})
    assert output.last[-1] == said[-1] == "so it is"


def test_podman_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman 5.4.2 and 5.8.6 give a build the machine's network, whichever is asked for."""
    runner = DockerRunner(DockerPolicy(allow_builds=True))
    for info, builds in ((PODMAN_5, False), (DOCKER_28, True)):
        monkeypatch.setattr(runner, "_engine", SimpleNamespace(kind=kind_of(info)))
        assert runner.builds is builds
    monkeypatch.setattr(runner, "_engine", SimpleNamespace(kind=kind_of(PODMAN_5)))
    with pytest.raises(ImageRefused, match=r"Podman 5\.4\.2 builds no images here") as refused:
        runner.build_network()
    assert "--image-tar" in str(refused.value.hint)


def test_rootless_engine_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers would find the folders of this worker's jobs, and could not write there."""
    rootless, path = kind_of(ROOTLESS_PODMAN), tmp_path / "s"
    with UnixStreamServer(str(path), Docker29):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        check_fit(rootless)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(StartFailed, match=f"is of the user {os.getuid()}") as refused:
            check_fit(rootless)
        assert f"start the worker as the user {os.getuid()}" in str(refused.value.hint)
        check_fit(kind_of(PODMAN_5))


def test_job_is_entered_by_docker_or_else_by_podman(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "unix:///run/podman/podman.sock"
    monkeypatch.setenv("DOCKER_HOST", url)
    job = entry.Container("7f3a1c")
    for there, begins in (
        ({"docker", "podman"}, ("docker", "--host", url, "exec", "-i")),
        ({"podman"}, ("podman", "--url", url, "exec", "-i")),
    ):
        monkeypatch.setattr(shutil, "which", lambda name, there=there: name in there or None)
        words = job.program(["sh"], {}, tty=False).command
        assert words == (*begins, "7f3a1c", "sh")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(entry.NotEntered, match="neither docker nor podman") as refused:
        job.program(["sh"], {}, tty=False)
    assert "install one of these" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("since", "now", "code", "vouches"),
    [
        (EngineRun("1:5", keeps=True), DOCKER_RUN, 0, True),
        # What a restarted Docker gives a container whose end it missed, 26.1.5 among them.
        (EngineRun("1:5", keeps=True), DOCKER_RUN, 255, False),
        (EngineRun("2:9", keeps=True), DOCKER_RUN, 255, True),
        (EngineRun("1:5", keeps=False), DOCKER_RUN, 0, False),
        # Whether one that is not visible was restarted, nobody knows.
        (EngineRun("", keeps=True), EngineRun("", keeps=True), 0, True),
        (EngineRun("", keeps=True), EngineRun("", keeps=True), 255, False),
        # Podman's monitor has seen every end.
        (EngineRun("", keeps=True), EngineRun("", keeps=True, watches=True), 255, True),
    ],
)
def test_a_code_counts_if_the_engine_can_have_seen_it(
    since: EngineRun, now: EngineRun, *, code: int, vouches: bool
) -> None:
    assert now.vouches(since, code) is vouches


@pytest.mark.parametrize(
    ("status", "said"),
    [
        # Docker 26.1.5
        (409, 'Conflict. The container name "/job" is already in use by container "7f3a1c"'),
        # Podman 5.4.2
        (500, 'creating container storage: the container name "job" is already in use by 7f3a1c'),
        (500, "no space left on device"),
    ],
)
def test_container_from_a_start_whose_answer_was_lost_is_replaced_on_either_engine(
    monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    refused: Any = SimpleNamespace(status_code=status, reason="", url="")
    answers: list[Any] = [APIError("", refused, said), "1"]
    removed: list[str] = []

    def create(*_: object, **__: object) -> str:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(Created, "create", create)
    api = SimpleNamespace(remove_container=lambda name, **_: removed.append(name))
    runner: Any = SimpleNamespace(_engine=SimpleNamespace(client=SimpleNamespace(api=api)))
    if "in use" in said:
        assert DockerRunner._created(runner, "image", {"name": "job"}) == "1"
        assert removed == ["job"]
    else:
        with pytest.raises(APIError):
            DockerRunner._created(runner, "image", {"name": "job"})
        assert not removed
