"""A folder of the project as the checkpoint folder: what it begins with, and what is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.job_runs.project_checkpoint import link_checkpoint
from forge_worker.prepare.provisions import ProvisionFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("name", ["runs", "runs/a/b"])
def test_what_the_job_writes_there_is_in_the_checkpoint(
    work: Path, checkpoint: Path, name: str
) -> None:
    link_checkpoint(work, name, checkpoint, checkpoint)
    (work / name / "model").write_text("1")
    assert (checkpoint / "model").read_text() == "1"


def test_the_job_starts_from_the_files_of_the_project(work: Path, checkpoint: Path) -> None:
    (work / "runs").mkdir()
    (work / "runs" / "model").write_text("the project's")
    link_checkpoint(work, "runs", checkpoint, checkpoint)
    assert (checkpoint / "model").read_text() == "the project's"


def test_a_restored_checkpoint_replaces_the_files_of_the_project(
    work: Path, checkpoint: Path
) -> None:
    (checkpoint / "model").write_text("restored")
    (work / "runs").mkdir()
    (work / "runs" / "other").touch()
    link_checkpoint(work, "runs", checkpoint, checkpoint)
    assert {path.name for path in (work / "runs").iterdir()} == {"model"}
    assert (checkpoint / "model").read_text() == "restored"


def test_a_file_or_a_link_in_the_way_is_named(work: Path, checkpoint: Path, tmp_path: Path) -> None:
    (work / "file").touch()
    (work / "link").symlink_to(tmp_path)
    for name in ("file", "file/runs", "link", "link/runs"):
        with pytest.raises(ProvisionFailed, match=f"'{name}' cannot be the checkpoint folder"):
            link_checkpoint(work, name, checkpoint, checkpoint)
    # Nothing was made through the link.
    assert {path.name for path in tmp_path.iterdir()} == {"work", "checkpoint"}
