"""What a job that could not import something lacks, in words that help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from forge_schema.ending import hopeless
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason
from forge_worker.job_runs.last_words import lacks

if TYPE_CHECKING:
    from pathlib import Path

ABSENT = "ModuleNotFoundError: No module named 'sklearn.svm'"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "scikit-learn is not in the worker's Python: name it in a requirements.txt"),
        ({"image": "i"}, "scikit-learn is not in the image: name it in a requirements.txt"),
        ({"requirements": "a.txt"}, "scikit-learn is not in a.txt: add it there"),
        ({"environment": {"source": "poetry.lock"}}, "`poetry add scikit-learn`"),
        (
            {"environment": {"source": "the active environment e"}},
            "is not in the active environment e",
        ),
    ],
)
def test_the_package_and_the_place_for_it_are_named(
    tmp_path: Path, spec: dict[str, Any], said: str
) -> None:
    assert said in (lacks(ABSENT, spec, tmp_path) or "")


def test_a_module_of_the_project_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "src" / "sklearn").mkdir(parents=True)
    assert "--env PYTHONPATH=src" in (lacks(ABSENT, {}, tmp_path) or "")
    (tmp_path / "sklearn.py").touch()
    assert lacks(ABSENT, {}, tmp_path) is None


PROJECT = """
[project]
scripts = {app-train = "app.train:main"}
[project.optional-dependencies]
train = ["scikit_learn>=1"]
[dependency-groups]
gpu = [{include-group = "other"}, "Foo.Bar"]
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ABSENT, "is in the extra train of the project: submit with --extra train"),
        ("ModuleNotFoundError: No module named 'foo_bar'", "submit with --group gpu"),
        ("app-train: not found", "which is not installed itself: run `python -m app.train`"),
        ("sh: 1: app-train: not found", "run `python -m app.train`"),
        ("bash: line 1: app-train: command not found", "run `python -m app.train`"),
        (
            'unable to start container process: exec: "app-train": executable file not found in',
            "run `python -m app.train`",
        ),
        ("/bin/sh: 1: poetry: not found", "submit the command without `poetry run`"),
        ("other: not found", None),
        ("page: not found", None),
    ],
)
def test_what_a_project_has_and_did_not_install(
    tmp_path: Path, error: str, said: str | None
) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    found = lacks(error, {"environment": {"source": "uv.lock"}}, tmp_path)
    assert (said or "") in (found or "")
    assert (found is None) == (said is None)


@pytest.mark.parametrize("text", ["[", "project = 1\n", "[project]\nscripts = 'x'\n", "\0"])
def test_a_project_that_the_job_has_overwritten_does_no_harm(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert lacks("app-train: not found", {}, tmp_path) is None
    assert "`uv add" in (lacks(ABSENT, {"environment": {"source": "uv.lock"}}, tmp_path) or "")


def test_a_module_of_a_src_layout_that_is_run_is_found(tmp_path: Path) -> None:
    (tmp_path / "src" / "app").mkdir(parents=True)
    error = (
        "/a/bin/python: Error while finding module specification for 'app.train'"
        " (ModuleNotFoundError: No module named 'app')"
    )
    assert "--env PYTHONPATH=src" in (lacks(error, {}, tmp_path) or "")
    fence = Fence(job_id=1, token=1, nonce=UUID(int=1))
    assert hopeless(End(fence, Reason.EXIT_CODE, 1, error))
    # make ends with a code of its own, and says that of the program.
    made = f"{error}\n{error}\nmake[1]: *** [Makefile:30: fit] Error {{}}\nmake: *** [all] Error 2"
    assert hopeless(End(fence, Reason.EXIT_CODE, 2, made.format(1)))
    assert not hopeless(End(fence, Reason.EXIT_CODE, 2, made.format(3)))


def test_programs_and_libraries_count_too(tmp_path: Path) -> None:
    assert "pytest is not in" in (lacks("/a/python3: No module named pytest", {}, tmp_path) or "")
    error = "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file"
    assert "no libcusparseLt.so.0: use an image" in (lacks(error, {}, tmp_path) or "")
    assert lacks("ValueError: No module named 'a'", {}, tmp_path) is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("[FATAL tini (7)] exec /bin/sh failed: No such file or directory", "has no /bin/sh"),
        ("[FATAL tini (7)] exec /bin/sh failed: Exec format error", "is for other processors"),
        ("ERROR (catatonit:2): failed to exec pid1: No such file or directory", "no /bin/sh"),
    ],
)
def test_an_image_in_which_no_shell_starts_is_named(tmp_path: Path, error: str, said: str) -> None:
    assert said in (lacks(error, {"image": "distroless"}, tmp_path) or "")


@pytest.mark.parametrize(
    ("first", "error", "said"),
    [
        ("#!/bin/bash\r\n", "./run.sh: not found", "line ends of Windows"),
        ("#!/usr/bin/env python3\r\n", "env: use -[v]S to pass options", "line ends of Windows"),
        ("#!/opt/python\n", "sh: 7: exec: ./run.sh: not found", "first line names: #!/opt/python"),
        ("#!/bin/bash\n", "data.csv is missing", None),
        ("echo\n", "./run.sh: not found", None),
    ],
)
def test_a_script_that_cannot_start_is_told_why(
    tmp_path: Path, first: str, error: str, said: str | None
) -> None:
    (tmp_path / "run.sh").write_text(first, newline="")
    found = lacks(error, {"command": ["./run.sh"]}, tmp_path)
    assert (found is None) == (said is None)
    assert (said or "") in (found or "")
    outside = {"command": ["../run.sh"]}
    (tmp_path / "work").mkdir()
    assert lacks(error, outside, tmp_path / "work") is None
