"""What a project's requirements are made of, so that the same are installed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_worker.provisions import ProvisionFailed
from forge_worker.requirements import read

if TYPE_CHECKING:
    from pathlib import Path

LISTED = """\
-r sub/more.txt
--constraint=limits.txt
-e ./pkg[fast]
wheels/a-1-py3-none-any.whl --hash=sha256:00
--find-links found
b @ file:///nowhere/b.whl
c==1 \\
  --hash=sha256:11  # data.bin is no part of it
-r ../outside.txt
-r sub/more.txt
"""
FILES = {
    "requirements.txt": LISTED,
    "sub/more.txt": "-r deep.txt\nd\n",
    "sub/deep.txt": "e\n",
    "limits.txt": "d<2\n",
    "pkg/setup.py": "",
    "pkg/inner/module.py": "",
    "wheels/a-1-py3-none-any.whl": "",
    "found/f-1-py3-none-any.whl": "",
    "data.bin": "",
    "wheels/other.whl": "",
}
PARTS = {name for name in FILES if name not in {"data.bin", "wheels/other.whl"}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (tmp_path / "outside.txt").write_text("secret\n", encoding="utf-8")
    return folder


def test_each_part_changes_the_digest_and_nothing_else_does(project: Path) -> None:
    before = read(project, "requirements.txt")
    assert set(before.files) == {"requirements.txt", "sub/more.txt", "sub/deep.txt", "limits.txt"}
    changing = set()
    for name, text in FILES.items():
        (project / name).write_text(f"{text}# changed\n", encoding="utf-8")
        if read(project, "requirements.txt").digest != before.digest:
            changing.add(name)
        (project / name).write_text(text, encoding="utf-8")
    assert changing == PARTS
    assert read(project, "requirements.txt") == before
    (project / "found" / "new.whl").touch()
    assert read(project, "requirements.txt").digest != before.digest


def test_a_package_that_would_be_looked_for_later_is_installed_for_good(project: Path) -> None:
    assert "\n./pkg[fast]\n" in read(project, "requirements.txt").files["requirements.txt"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[project]\ndynamic = ['dependencies']\n", "does not list its dependencies itself"),
        ("[project]\ndependencies = [1]\n", "does not list its dependencies itself"),
        ("project = 1\n", "is no pyproject.toml"),
        ("[project\n", "is no pyproject.toml"),
        ("\udcff", "is not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_told(project: Path, text: str, said: str) -> None:
    (project / "pyproject.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ProvisionFailed, match=said):
        read(project, "pyproject.toml")


def test_a_pyproject_is_its_dependencies(project: Path) -> None:
    text = (
        "[project]\nname = 'p'\nversion = '1'\ndependencies = ['a>1', 'b; python_version>\"3\"']\n"
    )
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    first = read(project, "pyproject.toml")
    assert first.files == {"pyproject.toml": 'a>1\nb; python_version>"3"\n'}
    (project / "pyproject.toml").write_text(text.replace("version = '1'", "version = '2'"))
    assert read(project, "pyproject.toml") == first
