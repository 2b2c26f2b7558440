"""The identity of a project's requirements, so that equal ones are installed once."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from forge_worker.attempt import Stopped
from forge_worker.prepare.provisions import ProvisionFailed
from forge_worker.prepare.requirements import Requirements, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

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


def nobody() -> None:
    """Go on: nobody wants it ended."""


def listed(project: Path) -> Requirements:
    return read(project, "requirements.txt", nobody)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (tmp_path / "outside.txt").write_text("secret\n", encoding="utf-8")
    return folder


def test_each_part_changes_the_digest_and_nothing_else_does(project: Path) -> None:
    before = listed(project)
    assert set(before.files) == {"requirements.txt", "sub/more.txt", "sub/deep.txt", "limits.txt"}
    changing = set()
    for name, text in FILES.items():
        (project / name).write_text(f"{text}# changed\n", encoding="utf-8")
        if listed(project).digest != before.digest:
            changing.add(name)
        (project / name).write_text(text, encoding="utf-8")
    assert changing == PARTS
    assert listed(project) == before
    (project / "found" / "new.whl").touch()
    assert listed(project).digest != before.digest


def test_a_package_that_would_be_looked_for_later_is_installed_for_good(project: Path) -> None:
    assert "\n./pkg[fast]\n" in listed(project).files["requirements.txt"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[project]\ndynamic = ['dependencies']\n", "does not list its dependencies statically"),
        ("[project]\ndependencies = [1]\n", "does not list its dependencies statically"),
        ("project = 1\n", "is not a valid pyproject.toml"),
        ("[project\n", "is not a valid pyproject.toml"),
        ("\udcff", "is not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_told(project: Path, text: str, said: str) -> None:
    (project / "pyproject.toml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ProvisionFailed, match=said):
        read(project, "pyproject.toml", nobody)


def test_a_pyproject_is_its_dependencies(project: Path) -> None:
    text = (
        "[project]\nname = 'p'\nversion = '1'\ndependencies = ['a>1', 'b; python_version>\"3\"']\n"
    )
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    first = read(project, "pyproject.toml", nobody)
    assert first.files == {"pyproject.toml": 'a>1\nb; python_version>"3"\n'}
    (project / "pyproject.toml").write_text(text.replace("version = '1'", "version = '2'"))
    assert read(project, "pyproject.toml", nobody) == first


def test_no_folder_is_walked_twice_whatever_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [".", "./", "sub/..", "pkg", "pkg/inner", "./pkg/", "sub"]
    for number in range(50):
        (project / "many" / f"{number}").mkdir(parents=True)
        names.append(f"many/{number}")
    (project / "sub" / "more.txt").write_text("../pkg\n..\n")
    (project / "requirements.txt").write_text("\n".join([*names * 20, "-r sub/more.txt"]))
    walked: Counter[str] = Counter()
    scandir = os.scandir

    def counted(path: Any) -> Iterator[os.DirEntry[str]]:  # noqa: ANN401  passed on
        walked[os.path.realpath(path)] += 1
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    listed(project)
    assert set(walked.values()) == {1}
    assert walked.keys() >= {str(project), str(project / "pkg" / "inner")}


def test_an_installation_ends_when_it_is_no_longer_needed(project: Path) -> None:
    """Whichever of its calls is the one that tells."""
    calls = []
    read(project, "requirements.txt", lambda: calls.append(1))
    assert len(calls) > len(PARTS)
    for last in range(len(calls)):
        left = iter(range(last))

        def go_on(left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Stopped

        with pytest.raises(Stopped):
            read(project, "requirements.txt", go_on)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * (1 << 20) + "\n", "too large: requirements may have 1 MiB"),
        ("-r large.txt\n-r other.txt\n", "too large"),
        ("\n".join(f"a{number}" for number in range(20_001)), "more than 20000 different words"),
        ("\n".join(f"-r {number}" for number in range(20_001)), "more than 20000 different"),
    ],
)
def test_what_is_too_much_is_refused(project: Path, text: str, said: str) -> None:
    for name in ("large.txt", "other.txt"):
        (project / name).write_text("x" * (600 << 10))
    (project / "requirements.txt").write_text(text)
    with pytest.raises(ProvisionFailed, match=said):
        listed(project)
    (project / "pyproject.toml").write_text("#" * (129 << 10))
    with pytest.raises(ProvisionFailed, match=r"pyproject.toml 128 KiB"):
        read(project, "pyproject.toml", nobody)


@pytest.mark.parametrize(
    "text", ["\n" * 1_000_000, "[" * 1_000_000, "a/" * 500_000, " " * 1_000_000]
)
def test_what_patterns_would_stumble_over_is_read(project: Path, text: str) -> None:
    (project / "requirements.txt").write_text(text)
    assert listed(project).files["requirements.txt"] == text


def test_digests_do_not_count_as_words(project: Path) -> None:
    text = "a==1 " + " ".join(f"--hash=sha256:{number}" for number in range(30_000))
    (project / "requirements.txt").write_text(text)
    assert listed(project).files == {"requirements.txt": text}
