"""Which pip installs a project's requirements, and what it sees."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from venv import EnvBuilder

import pytest
from forge_worker.prepare import pip_install
from forge_worker.prepare.pip_install import SCRIPT, PipMissing, pip_program
from support.wheels import wheel

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
    monkeypatch.setattr(pip_install, "_installed", lambda: None)
    assert pip_program(same_python=True) == both[1]
    monkeypatch.undo()
    monkeypatch.setattr(pip_install, "_bundled", lambda: None)
    assert pip_program(same_python=False) == both[0]
    monkeypatch.setattr(pip_install, "_installed", lambda: None)
    with pytest.raises(PipMissing):
        pip_program(same_python=False)


def installed(root: Path, uv: str, *, asked: str = "") -> str:
    """Install a list of one package as a job would, and return what was said."""
    wheel(root / "wheels", "wanted", "1.0")
    (root / "list").write_text("--no-index\n--find-links wheels\nwanted==1.0\n", encoding="utf-8")
    pip, program = pip_program(same_python=True)
    words = (sys.executable, root / "env", pip.source / program, "list", asked, uv, "", "--no-deps")
    done = subprocess.run(
        ["/bin/sh", "-c", SCRIPT, "sh", *words],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code = "import wanted; print(wanted.VERSION)"
    seen = subprocess.run([root / "env/bin/python", "-c", code], capture_output=True, check=True)
    assert seen.stdout == b"1.0\n"
    return done.stdout + done.stderr


def test_uv_installs_a_lock(tmp_path: Path) -> None:
    uv = pip_install.uv_program()
    assert uv is not None
    said = installed(tmp_path, str(uv.source))
    assert "+ wanted==1.0" in said
    assert "pip" not in said


def test_pip_installs_what_uv_could_not(tmp_path: Path) -> None:
    said = installed(tmp_path, "/nowhere/uv", asked="2.7")
    assert "forge: uv could not install it, so pip tries" in said
    assert "Successfully installed wanted-1.0" in said
    assert "forge: the project requires Python 2.7, and here is Python 3." in said
