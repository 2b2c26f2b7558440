"""A restored checkpoint in its place: a folder of the project, and files beside its code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from forge_worker.files.placing import PlaceTaken, give_times, place_checkpoint
from forge_worker.files.saved_files import SavedFiles, saved_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def restored(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


def at(work: Path, name: str | None, *patterns: str) -> SavedFiles:
    return saved_files(work.parent, name, patterns)


@pytest.mark.parametrize("name", ["runs", "runs/a/b"])
def test_what_the_job_writes_there_is_in_the_checkpoint(
    work: Path, restored: Path, name: str
) -> None:
    saved = at(work, name)
    place_checkpoint(saved, restored)
    (work / name / "model").write_text("1")
    assert saved.path == work / name
    assert saved.look().files.keys() == {"model"}
    # It is the folder itself, so ".." and the removal of the folder are as the program expects.
    assert not (work / name).is_symlink()


def test_the_job_starts_from_the_files_of_the_project(work: Path, restored: Path) -> None:
    (work / "runs").mkdir()
    (work / "runs" / "model").write_text("the project's")
    saved = at(work, "runs")
    place_checkpoint(saved, restored)
    assert (work / "runs" / "model").read_text() == "the project's"
    assert saved.look().files.keys() == {"model"}


def test_a_restored_checkpoint_replaces_the_files_of_the_project(
    work: Path, restored: Path
) -> None:
    (restored / "model").write_text("restored")
    (work / "runs").mkdir()
    (work / "runs" / "other").touch()
    place_checkpoint(at(work, "runs"), restored)
    assert {path.name for path in (work / "runs").iterdir()} == {"model"}
    assert (work / "runs" / "model").read_text() == "restored"


def test_a_file_or_a_link_in_the_way_is_named(work: Path, restored: Path, tmp_path: Path) -> None:
    (work / "file").touch()
    (work / "link").symlink_to(tmp_path)
    for name in ("file", "file/runs", "link", "link/runs"):
        with pytest.raises(PlaceTaken, match=f"'{name}' cannot be the checkpoint folder"):
            place_checkpoint(at(work, name), restored)
    # Nothing was made through the link.
    assert {path.name for path in tmp_path.iterdir()} == {"work", "checkpoint"}


@pytest.mark.parametrize("name", [None, "runs"])
def test_restored_files_replace_those_of_the_project_beside_its_code(
    work: Path, restored: Path, tmp_path: Path, name: str | None
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "train.py").touch()
    (work / "old.pt").write_text("the project's")
    (work / "best.pt").write_text("the project's")
    (work / "folder.pt").mkdir()
    (work / "deep").symlink_to(outside)
    for path in ("best.pt", "folder.pt", "deep/a/last.pt"):
        place = restored / ".forge-work" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("restored")
    (restored / ".forge-work" / "latest.pt").symlink_to("best.pt")
    saved = at(work, name, "**/*.pt")
    project = saved.named()
    place_checkpoint(saved, restored)
    assert {path: (work / path).read_text() for path in ("old.pt", "best.pt", "folder.pt")} == {
        "old.pt": "the project's",
        "best.pt": "restored",
        "folder.pt": "restored",
    }
    assert (work / "deep" / "a" / "last.pt").read_text() == "restored"
    assert (work / "latest.pt").readlink().name == "best.pt"
    assert not list(outside.iterdir())
    assert not list(saved.path.iterdir())
    # What the project has, before it was replaced.
    assert project.files.keys() == {".forge-work/old.pt", ".forge-work/best.pt"}
    look = saved.look()
    assert look.links == {".forge-work/latest.pt": "best.pt"}
    changed = {path for path, status in look.files.items() if project.files.get(path) != status}
    assert changed == {f".forge-work/{name}" for name in ("best.pt", "folder.pt", "deep/a/last.pt")}


def test_restored_files_that_no_pattern_names_are_stored_again(work: Path, restored: Path) -> None:
    (restored / ".forge-work" / "a").mkdir(parents=True)
    (restored / ".forge-work" / "a" / "[x]*.pt").touch()
    saved = at(work, None)
    place_checkpoint(saved, restored)
    (work / "a" / "x.pt").touch()
    assert saved.look().files.keys() == {".forge-work/a/[x]*.pt"}


@pytest.mark.parametrize("tries", [1, 2])
def test_the_projects_files_are_older_than_what_was_restored(
    work: Path, restored: Path, tries: int
) -> None:
    """A program that continues from its newest file finds its own, not what was unpacked now."""
    for name in ("best.pt", "base.pt", "old.pt", "train.py"):
        (work / name).write_text("the project's")
    os.utime(work / "old.pt", ns=(10**9, 10**9))
    saved = at(work, None, "*.pt")
    project = saved.named()
    times = {".forge-work/best.pt": 1_500_000_000 * 10**9, "step-1": 1_400_000_000 * 10**9}
    for _ in range(tries):
        (restored / ".forge-work").mkdir()
        for path in times:
            (restored / path).write_text("restored")
        place_checkpoint(saved, restored)
        now = give_times(saved, times, project)
    found = {path.name: path.stat().st_mtime for path in work.glob("*.pt")}
    assert found == {"best.pt": 1_500_000_000, "base.pt": 1_399_999_999, "old.pt": 1}
    # Nobody takes them for files that the job changed.
    look = saved.look().files
    unchanged = {path for path, status in now.files.items() if look[path] == status}
    assert unchanged == {".forge-work/base.pt", ".forge-work/old.pt"}
