"""What a submit says of files that ignore files leave out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from forge_client.project.notices import UPDATE, Missed, missing, notices
from forge_client.project.scan import scan
from support import trees

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    sizes = {"train.py": 0, "data/a.csv": 2048, "data/b.csv": 2048, "weights.pt": 9000}
    sizes |= {"lib.py": 2, "conf.yaml": 1}
    trees.write(tmp_path, {name: bytes(size) for name, size in sizes.items()})
    (tmp_path / ".gitignore").write_text("data/\n*.pt\nlib.py\nconf.yaml\n")
    return tmp_path


def test_data_and_code_are_named_with_their_sizes(project: Path) -> None:
    listing = scan(project)
    assert missing(listing) == [
        Missed("weights.pt", 1, 9000), Missed("data/", 2, 4096),
        Missed("lib.py", 1, 2), Missed("conf.yaml", 1, 1),
    ]  # fmt: skip
    (said,) = notices(listing)
    assert said == (
        "ignore files leave out 5 files, 12.8 KiB: weights.pt, data/, lib.py and 1 more; if the job"
        " needs them: --include weights.pt --include data/ --include lib.py"
    )
    assert notices(scan(project, include=["*.pt", "data/", "lib.py", "conf.yaml"])) == []
    # One folder has all of them.
    (project / ".gitignore").write_text("*.csv\n")
    assert notices(scan(project))[0].endswith("--include data/")
    assert notices(scan(project, include=["data/"])) == []


@pytest.mark.parametrize("word", ["data/a.csv", "./data", "--in=data/a.csv", "data/"])
def test_what_the_command_names_is_said_first(project: Path, word: str) -> None:
    (said,) = notices(scan(project), ["python", "train.py", word])
    assert said.startswith("the command names data")
    assert said.endswith("--include data/")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("../conf.yaml", "../conf.yaml, outside the folder: submit from one that has both"),
        ("--config=..", ".., outside the folder"),
        ("{}/train.py", "in the job it is train.py"),
        ("../gone.yaml", None),
        ("{}", None),
        # A name of a file has at most 255 bytes.
        ("echo hi; " * 60, None),
    ],
)
def test_what_the_job_will_not_have_there_is_said(
    tmp_path: Path, word: str, said: str | None
) -> None:
    trees.write(tmp_path, {"conf.yaml": b"", "p/train.py": b""})
    found = notices(scan(tmp_path / "p"), ["bash", word.format(tmp_path / "p")])
    assert (len(found) == 1 and said in found[0]) if said else not found


def test_what_programs_make_again_is_not_worth_a_word(tmp_path: Path) -> None:
    made = (
        "wandb/run-1/a.yaml", "lightning_logs/version_0/a.ckpt", "__pycache__/a.py",
        ".venv/lib/x.py", "node_modules/a/b.txt", ".mypy_cache/a.json", "runs/1/a.pt",
        "build/x.py", "pkg.egg-info/a.txt", "notes.log", "env/pyvenv.cfg", "env/x.py",
    )  # fmt: skip
    trees.write(tmp_path, dict.fromkeys(made, b"x"))
    ignored = ("runs/", "build/", "*.egg-info", "*.log", ".mypy_cache", "env", "node_modules")
    (tmp_path / ".gitignore").write_text("\n".join(ignored))
    assert notices(scan(tmp_path), ["python", "t.py", "--out", "runs/1"]) == []
    (said,) = notices(scan(tmp_path), ["python", "t.py", "--from", "runs/1/a.pt"])
    assert said.endswith("--include runs/")


def test_results_of_trackers_stay_out_unless_they_are_a_package(tmp_path: Path) -> None:
    trees.write(tmp_path, {"wandb/run-1/a": b"", "lightning_logs/version_0/b": b"", "t.py": b""})
    listing = scan(tmp_path)
    assert [entry.name for entry in listing.entries] == ["t.py"]
    assert listing.left_out == ()
    trees.write(tmp_path, {"wandb/__init__.py": b""})
    kept = scan(tmp_path, include=["lightning_logs/"])
    assert {"wandb/__init__.py", "lightning_logs/version_0/b"} <= {one.name for one in kept.files}


def test_what_git_did_not_fetch_is_named(tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
    trees.write(tmp_path, {"w.bin": pointer.encode(), "n.csv": b"x" * 130, "a.csv": b""})
    listing = replace(scan(tmp_path), submodules=("lib",))
    assert notices(listing) == [
        f"submodules that are not checked out: lib; if the job needs them: {UPDATE}",
        "pointers of Git LFS in place of files: w.bin; if the job needs them: git lfs pull",
    ]
