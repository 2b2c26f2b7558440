"""Links, pipes and folders where a job should write a file: not read, and said in its log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from forge_worker.attempt_folders import JUNIT_FILE, RESULT_FILE
from forge_worker.job_io.occasions import Commits
from forge_worker.job_io.results import ResultFiles
from support.workers.attempts import attempt_of, some_grant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def link(file: Path) -> None:
    target = file.with_name("target")
    target.write_text('{"a": 1}')
    file.symlink_to(target)


@pytest.mark.parametrize(
    ("put", "what"), [(link, "a link"), (os.mkfifo, "a pipe"), (os.mkdir, "a folder")]
)
def test_what_is_no_file_is_said(tmp_path: Path, put: Callable[[Path], object], what: str) -> None:
    attempt = attempt_of(some_grant(), tmp_path / "attempt")
    for name in (RESULT_FILE, JUNIT_FILE, attempt.folders.save.name):
        put(attempt.folders.control / name)
        (attempt.folders.control / "target").unlink(missing_ok=True)
    commits = Commits(attempt)
    for _ in range(2):
        assert commits.pending() is None
    # It stores nothing, so it needs no queue.
    ResultFiles(attempt, None).store()  # type: ignore[arg-type]
    unread = ", which Forge does not read"
    assert attempt.folders.log.read_text().splitlines() == [
        f"forge: $FORGE_CHECKPOINT_FILE is {what}, so it requests no checkpoint",
        f"forge: the result was not stored: $FORGE_RESULT_FILE is {what}{unread}",
        f"forge: test report: 0 tests were stored: $FORGE_JUNIT_FILE is {what}{unread}",
    ]
