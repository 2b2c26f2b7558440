"""Which release is the one before this version, and that all files name the same version."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from chaos.parts.old_version import release_before

ROOT = Path(__file__).parents[3]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
NAMED = re.compile(
    r"(?:forge[_-](?:queue|server|sweeper|worker)[-:]|newTag: |forge-migrate-)"
    r"(\d+[.-]\d+[.-]\d+(?:[.-]dev\d+)?)"
)
PROJECT = '[project]\nname = "forge-queue"\nversion = "{}"\n'


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example")
    asked: list[str | Path] = ["git", *named, "-C", folder, *words]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def history(tmp_path: Path) -> dict[str, str]:
    """The commit that set each version, in a clone without tags."""
    git(tmp_path, "init", "--quiet")
    commits = {}
    for version in ("0.1.0", "0.2.0", "0.2.1.dev0", "0.3.0", "0.3.1.dev0"):
        (tmp_path / "pyproject.toml").write_text(PROJECT.format(version))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", version)
        commits[version] = git(tmp_path, "rev-parse", "HEAD")
        # Work goes on, also on the same file.
        (tmp_path / "pyproject.toml").write_text(PROJECT.format(version) + "# more\n")
        git(tmp_path, "commit", "--quiet", "--all", "--message", "more")
    return commits


@pytest.mark.parametrize(
    ("version", "before"),
    [
        ("0.1.0", None),
        # What came before 0.2.0 was never released.
        ("0.2.0", None),
        ("0.2.1.dev0", "0.2.0"),
        ("0.3.0", "0.2.0"),
        ("0.3.1.dev0", "0.3.0"),
    ],
)
def test_the_release_before_a_version_is_found_in_the_history(
    history: dict[str, str], tmp_path: Path, version: str, before: str | None
) -> None:
    git(tmp_path, "checkout", "--quiet", history[version])
    assert release_before(tmp_path) == (history[before] if before else None)


def test_a_clone_without_history_has_no_release_before(
    history: dict[str, str], tmp_path: Path
) -> None:
    assert release_before(tmp_path) == history["0.3.0"]
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", tmp_path.as_uri(), str(shallow))
    assert release_before(shallow) is None
    shutil.rmtree(tmp_path / ".git")
    assert release_before(tmp_path) is None


def test_every_file_names_this_version() -> None:
    files = [ROOT / "README.md", ROOT / "docs" / "github-action.md"]
    files += (ROOT / "infra").rglob("*.yaml")
    named = {
        (path.relative_to(ROOT).as_posix(), found)
        for path in files
        for found in NAMED.findall(path.read_text("utf-8"))
    }
    assert len(named) > 5
    assert {(path, found) for path, found in named if found.replace("-", ".") != VERSION} == set()
