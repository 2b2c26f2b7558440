"""What a submit notes of a project's repository."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from forge_client.cli.show.standing import no_patch_text, revision_text
from forge_client.project.git import changes
from forge_client.project.git.changes import git_state
from forge_client.project.scan import scan

if TYPE_CHECKING:
    from pathlib import Path

WHO = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *WHO, "-C", folder, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder within a repository, with everything committed."""
    run(tmp_path, "init", "-q", "-b", "main")
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "train.py").write_text("one\n")
    (folder / "old.py").write_text("gone\n")
    (folder / ".env").write_text("KEY=old\n")
    (folder / ".aws").mkdir()
    (folder / ".aws" / "config").write_text("KEY=secret\n")
    (tmp_path / "README").write_text("one\n")
    run(tmp_path, "add", "-A")
    run(tmp_path, "commit", "-qm", "first")
    return folder


def test_a_clean_folder_has_a_revision_and_a_branch(project: Path) -> None:
    (project.parent / "README").write_text("a change elsewhere\n")
    state = git_state(scan(project))
    assert state == ({"revision": run(project, "rev-parse", "HEAD"), "branch": "main"}, b"", [])
    run(project, "checkout", "-q", "--detach")
    detached = git_state(scan(project))
    assert detached is not None
    assert "branch" not in detached[0]


def test_a_diff_does_not_depend_on_the_users_configuration(project: Path) -> None:
    run(project, "config", "color.ui", "always")
    run(project, "config", "diff.noprefix", "true")
    run(project, "config", "diff.context", "0")
    (project / "train.py").write_text("one\ntwo\n")
    state = git_state(scan(project))
    assert state is not None
    assert b"\n--- a/train.py\n+++ b/train.py\n" in state[1]
    # Without the lines around, `git apply` refuses it.
    assert b"\n one\n+two\n" in state[1]
    assert b"\x1b" not in state[1]


def test_a_deleted_files_name_may_be_no_utf_8(project: Path) -> None:
    odd = project / os.fsdecode(b"caf\xe9.txt")
    odd.touch()
    run(project, "add", "-A")
    run(project, "commit", "-qm", "second")
    odd.unlink()
    state = git_state(scan(project))
    assert state is not None
    assert state[0]["dirty"]


def test_a_diff_has_changes_of_the_bundles_files_and_no_others(project: Path) -> None:
    (project / "train.py").write_text("two\n")
    (project / ".env").write_text("KEY=secret\n")
    (project / "new.py").write_text("untracked\n")
    (project / "old.py").unlink()
    (project / ".aws" / "config").unlink()
    state = git_state(scan(project))
    assert state is not None
    assert state[0]["dirty"]
    assert b"--- a/train.py" in state[1]
    assert b"+two" in state[1]
    assert b"--- a/old.py\n+++ /dev/null" in state[1]
    assert b"secret" not in state[1]
    assert b"KEY" not in state[1]


def test_a_repositorys_own_programs_are_not_run(project: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name in ("core.fsmonitor", "diff.external"):
        run(project, "config", name, f"touch {ran}; false")
    (project / "train.py").write_text("two\n")
    state = git_state(scan(project))
    assert state is not None
    assert b"+two" in state[1]
    assert not ran.exists()


def test_a_renamed_file_is_gone_under_its_old_name(project: Path) -> None:
    run(project, "config", "diff.renames", "copies")
    run(project, "mv", "old.py", "new.py")
    state = git_state(scan(project))
    assert state is not None
    assert b"--- a/old.py\n+++ /dev/null" in state[1]
    assert b"--- /dev/null\n+++ b/new.py" in state[1]


def test_a_change_that_is_too_large_is_left_out_of_a_diff(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST_DIFF_BYTES", 400)
    (project / "train.py").write_text("x" * 400)
    (project / "old.py").write_text("diff --git a/x b/x\n")
    state = git_state(scan(project))
    assert state is not None
    assert state[2] == ["train.py, whose change is too large"]
    run(project, "checkout", "-q", ".")
    (project.parent / "patch").write_bytes(state[1])
    # The notes before it do not matter to git.
    assert state[1].startswith(b"# left out: train.py, whose change is too large\ndiff --git ")
    run(project.parent, "apply", "--directory=train", "patch")
    assert (project / "old.py").read_text() == "diff --git a/x b/x\n"
    assert (project / "train.py").read_text() == "one\n"
    monkeypatch.setattr(changes, "MOST_FILES", 0)
    state = git_state(scan(project))
    assert state is not None
    why = "the changes of 1 file, more than 0"
    assert state[1:] == (f"# left out: {why}\n".encode(), [why])
    (project.parent / "patch").write_bytes(state[1])
    run(project.parent, "apply", "--allow-empty", "patch")


def test_the_changes_in_a_submodule_are_named(project: Path) -> None:
    inner = project / "inner"
    inner.mkdir()
    run(inner, "init", "-q", "-b", "main")
    run(inner, "commit", "-qm", "first", "--allow-empty")
    run(project, "add", "inner")
    run(project, "commit", "-qm", "second")
    run(inner, "commit", "-qm", "second", "--allow-empty")
    state = git_state(scan(project))
    assert state is not None
    assert state[1:] == (
        b"# left out: the changes in the submodule inner\n",
        ["the changes in the submodule inner"],
    )


def test_without_a_repository_or_git_there_is_nothing(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(scan(project)) is None
    monkeypatch.undo()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (project.parent / ".git").rename(tmp_path / "gone")
    assert git_state(scan(project)) is None


def test_a_revision_is_said_in_one_line() -> None:
    said = {"revision": "a" * 40, "branch": "main", "dirty": True}
    assert revision_text({"git": said}) == "aaaaaaaaaaaa on main, with uncommitted changes"
    assert revision_text({"git": {"revision": "a" * 40}}) == "aaaaaaaaaaaa"
    assert revision_text({}) == ""


def test_why_there_is_no_patch_is_said() -> None:
    said = {"revision": "a" * 40}
    assert "in no git repository" in no_patch_text({})
    assert "was committed" in no_patch_text({"git": said})
    assert "untracked files" in no_patch_text({"git": {**said, "dirty": True}})


def test_filters_that_the_repository_configures_are_not_run(project: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (project / ".gitattributes").write_text("* filter=own\n")
    for name in ("clean", "process"):
        run(project, "config", f"filter.own.{name}", f"touch {ran}; cat")
    run(project, "config", "filter.own.required", "true")
    (project / "train.py").write_text("two\n")
    state = git_state(scan(project))
    assert state is not None
    assert b"+two" in state[1]
    assert not ran.exists()


def test_a_diff_has_links_and_files_that_are_tracked_though_ignored(project: Path) -> None:
    (project / ".gitignore").write_text("old.py\nlast\n")
    (project / "last").symlink_to("train.py")
    run(project, "add", "-f", ".gitignore", "last", "old.py")
    run(project, "commit", "-qm", "second")
    (project / "last").unlink()
    (project / "last").symlink_to("old.py")
    (project / "old.py").write_text("two\n")
    state = git_state(scan(project))
    assert state is not None
    assert b"+old.py" in state[1]
    assert b"+two" in state[1]
    (project / "old.py").unlink()
    (project / "last").unlink()
    state = git_state(scan(project))
    assert state is not None
    assert state[1].count(b"deleted file mode") == 2
