"""Which pip installs a project's requirements, and what it sees."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from venv import EnvBuilder

import pytest
from forge_worker.prepare import pip_install
from forge_worker.prepare.pip_install import PipMissing, pip_program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("same_python", [True, False])
def test_no_package_of_the_worker_counts_as_installed(tmp_path: Path, *, same_python: bool) -> None:
    EnvBuilder(symlinks=True).create(tmp_path / "env")
    pip, program = pip_program(same_python=same_python)
    listed = subprocess.run(
        [tmp_path / "env/bin/python", pip.source / program, "list", "--format=json"],
        capture_output=True,
        check=True,
    )
    assert {package["name"] for package in json.loads(listed.stdout)} <= {"pip"}


def test_the_compiled_one_is_for_the_workers_python_and_the_wheel_for_any_other() -> None:
    own, runner = pip_program(same_python=True)
    assert (own.source / runner).is_relative_to(sys.prefix)
    _, program = pip_program(same_python=False)
    assert program.endswith(".whl/pip")


def test_one_of_the_two_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [pip_program(same_python=same_python) for same_python in (True, False)]
    monkeypatch.setattr(pip_install, "find_spec", lambda _: None)
    assert pip_program(same_python=True) == both[1]
    monkeypatch.undo()
    monkeypatch.setattr(pip_install, "_bundled", lambda: None)
    assert pip_program(same_python=False) == both[0]
    monkeypatch.setattr(pip_install, "find_spec", lambda _: None)
    with pytest.raises(PipMissing):
        pip_program(same_python=False)
