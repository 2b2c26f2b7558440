"""The operator's settings for containers take effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.runners import choice
from forge_worker.runners.choice import NoRunner, available, docker_policy, image_wanted
from forge_worker.runners.docker.mounts import MountRefused
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.settings.settings import WorkerSettings
from pydantic_settings import CliApp

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = ["--database-url=postgresql://x/y", "--store-url=file:///store"]


def settings(*flags: str) -> WorkerSettings:
    return CliApp.run(WorkerSettings, cli_args=[*NEEDED, *flags])


def test_policy_is_what_the_flags_say(tmp_path: Path) -> None:
    policy = docker_policy(
        settings(
            f"--worker-dir={tmp_path}",
            "--allowed-images=registry.example/us/*, tar:*",
            "--allow-builds",
            "--allow-swap",
            "--network=none",
            "--pull=always",
            "--default-image=debian",
            "--extra-mounts=/usr:/ours:rw",
        )
    )
    assert policy.allowed_images == ("registry.example/us/*", "tar:*")
    assert (policy.allow_builds, policy.allow_swap) == (True, True)
    assert (policy.network, policy.pull, policy.default_image) == ("none", "always", "debian")
    (mount,) = policy.mounts
    assert (str(mount.source), str(mount.target), mount.writable) == ("/usr", "/ours", True)


def test_policy_allows_little_unless_told() -> None:
    policy = docker_policy(settings())
    assert policy.allowed_images == ("*",)
    assert (policy.allow_builds, policy.allow_swap, policy.mounts) == (False, False, ())
    assert (policy.network, policy.pull, policy.default_image) == ("bridge", "missing", None)


def test_worker_says_whether_it_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "engine_answers", lambda: True)
    assert available(settings()).words == "images,launchers"
    runners = available(settings("--allow-builds"))
    assert runners.words == "images,builds,launchers"
    assert (
        available(settings("--allowed-images=", "--default-image=a")).words == "projects,launchers"
    )
    for said in ({"image": "a"}, {"image_tar": "b"}, {"dockerfile": "c"}):
        assert image_wanted(said) is not None
        assert isinstance(runners.of(said), DockerRunner)
    monkeypatch.setattr(choice, "engine_answers", lambda: False)
    assert available(settings("--allow-builds", "--allow-processes")).words == "projects,launchers"


def test_ports_are_published_only_where_there_are_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "engine_answers", lambda: False)
    with pytest.raises(NoRunner, match="--gang-network ports"):
        available(settings("--gang-network=ports", "--allow-processes"))


def test_mount_that_cannot_be_is_refused_at_start() -> None:
    with pytest.raises(MountRefused):
        available(settings("--extra-mounts=/:/machine"))


@pytest.mark.parametrize("flag", ["--network=host", "--pull=sometimes"])
def test_what_the_operator_cannot_say(flag: str) -> None:
    with pytest.raises((SystemExit, ValueError)):
        settings(flag)


def test_job_that_names_no_image_wants_none() -> None:
    none: dict[str, Any] = {"image": None}
    assert image_wanted(none) is None


def test_ports_of_gangs_are_refused_with_podman(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with 5.8.6: networks that are kept apart do not reach each other's ports either."""
    monkeypatch.setattr(choice, "engine_answers", lambda: True)
    monkeypatch.setattr(DockerRunner, "publishes", False)
    asked = [f"--worker-dir={tmp_path}", "--gang-network"]
    with pytest.raises(NoRunner, match="published ports") as refused:
        available(settings(*asked, "ports"))
    assert "--gang-network host" in str(refused.value.hint)
    assert available(settings(*asked, "host")).docker is not None
