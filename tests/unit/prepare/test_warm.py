"""What a machine notes of the parts of jobs that it has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forge_schema.model.worker import WARM
from forge_worker.job_runs.services import WarmParts

if TYPE_CHECKING:
    from pathlib import Path


def aged(folder: Path, part: int, ns: int) -> None:
    os.utime(folder / str(part), ns=(ns, ns), follow_symlinks=False)


def test_the_last_used_come_first_also_after_a_restart(tmp_path: Path) -> None:
    warm, bundle = WarmParts(tmp_path / "warm"), tmp_path / "bundle"
    assert warm.newest() == []
    bundle.touch()
    for n, part in enumerate((1, -2_000_000_000, 3)):
        warm.note({part: bundle})
        aged(tmp_path / "warm", part, n)
    warm.note({1: bundle})
    assert WarmParts(tmp_path / "warm").newest() == [1, 3, -2_000_000_000]


def test_what_was_evicted_is_forgotten_and_images_stay(tmp_path: Path) -> None:
    warm, bundle = WarmParts(tmp_path / "warm"), tmp_path / "bundle"
    bundle.touch()
    warm.note({1: None, 2: bundle})
    bundle.unlink()
    assert warm.newest() == [1]
    # It is another one of the same name.
    bundle.touch()
    assert warm.newest() == [1]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    warm = WarmParts(tmp_path / "warm")
    for part in range(WARM + 5):
        warm.note({part: None})
        aged(tmp_path / "warm", part, part)
    assert warm.newest() == list(range(WARM + 4, 4, -1))
    assert len(list((tmp_path / "warm").iterdir())) == WARM


def test_neither_foreign_files_nor_a_folder_that_cannot_be_written_stop_a_job(
    tmp_path: Path,
) -> None:
    warm = WarmParts(tmp_path / "warm")
    warm.note({1: None})
    (tmp_path / "warm" / "README").touch()
    (tmp_path / "file").touch()
    assert warm.newest() == [1]
    broken = WarmParts(tmp_path / "file" / "warm")
    broken.note({1: None})
    assert broken.newest() == []
