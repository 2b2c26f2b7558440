"""What a job that could not import something lacks, in words that help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.job_runs.lacking import lacks

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


def test_programs_and_libraries_count_too(tmp_path: Path) -> None:
    assert "pytest is not in" in (lacks("/a/python3: No module named pytest", {}, tmp_path) or "")
    error = "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file"
    assert "no libcusparseLt.so.0: use an image" in (lacks(error, {}, tmp_path) or "")
    assert lacks("ValueError: No module named 'a'", {}, tmp_path) is None
