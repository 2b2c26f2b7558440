"""Folders that the operator gives to every job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.runners.docker.mounts import MountRefused, extra_mounts

if TYPE_CHECKING:
    from pathlib import Path


def test_folders_are_read_only_unless_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    words = [f"{tmp_path}/a:/data", f"{tmp_path}/a:/in:ro", f"{tmp_path}/link:/out:rw"]
    mounts = extra_mounts(words, tmp_path / "worker")
    told = [(mount.source, str(mount.target), mount.writable) for mount in mounts]
    own = tmp_path / "a"
    assert told == [(own, "/data", False), (own, "/in", False), (own, "/out", True)]


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("/usr", "does not have the form"),
        ("usr:/data", "does not have the form"),
        ("/usr:data", "does not have the form"),
        ("/usr:/data/../forge", "does not have the form"),
        ("/usr:/data:rwx", "does not have the form"),
        ("/usr:/", "root of a container"),
        ("/usr:/forge", "/forge must not be mounted"),
        ("/usr:/forge/work/x", "/forge must not be mounted"),
        ("/usr:/proc/x", "/proc must not be mounted"),
        ("/no/such/folder:/data", "there is no folder"),
        ("/etc/passwd:/data", "there is no folder"),
        ("/var/run/docker.sock:/data", "there is no folder"),
        ("/:/data", "socket of a container engine"),
        ("/run:/data", "socket of a container engine"),
        ("/var/run:/data", "socket of a container engine"),
        ("WORKER:/data", "worker's own folder"),
        ("ABOVE:/data", "worker's own folder"),
    ],
)
def test_what_would_open_the_machine_is_refused(tmp_path: Path, word: str, why: str) -> None:
    worker = tmp_path / "above" / "worker"
    worker.mkdir(parents=True)
    said = word.replace("WORKER", str(worker)).replace("ABOVE", str(worker.parent))
    with pytest.raises(MountRefused) as refused:
        extra_mounts([said], worker)
    assert why in refused.value.message
    assert refused.value.hint


def test_engine_of_the_environment_is_kept_out_of_jobs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/own/docker.sock")
    (tmp_path / "own").mkdir()
    with pytest.raises(MountRefused, match="socket of a container engine"):
        extra_mounts([f"{tmp_path}/own:/data"], tmp_path / "worker")


def test_two_folders_cannot_be_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(MountRefused, match="already the target of another"):
        extra_mounts(["/usr:/data", "/etc:/data/"], tmp_path)
