"""Which pip installs a project's requirements, and what it sees."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from venv import EnvBuilder
from zipfile import ZipFile

import pip
import pytest
from forge_worker.prepare import pip_program as module
from forge_worker.prepare.pip_install import SCRIPT, uv_program
from forge_worker.prepare.pip_program import PipMissing, pip_program
from support.wheels import wheel


@pytest.mark.parametrize("same_python", [True, False])
def test_no_package_of_the_worker_counts_as_installed(tmp_path: Path, *, same_python: bool) -> None:
    EnvBuilder(symlinks=True).create(tmp_path / "env")
    pip, program = pip_program(tmp_path, same_python=same_python)
    listed = subprocess.run(
        [tmp_path / "env/bin/python", pip.source / program, "list", "--format=json"],
        capture_output=True,
        check=True,
    )
    assert {package["name"] for package in json.loads(listed.stdout)} <= {"pip"}


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take pip as if its authors had made it, even on a distribution that changed it."""
    monkeypatch.setattr(module, "OF_A_DISTRIBUTION", re.compile("(?!)"))


@pytest.mark.usefixtures("original")
def test_the_compiled_one_is_for_the_workers_python_and_the_wheel_for_any_other(
    tmp_path: Path,
) -> None:
    own, runner = pip_program(tmp_path, same_python=True)
    assert (own.source / runner).is_relative_to(sys.prefix)
    _, program = pip_program(tmp_path, same_python=False)
    assert program.endswith(".whl/pip")


@pytest.mark.usefixtures("original")
def test_one_of_the_two_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [pip_program(tmp_path, same_python=same_python) for same_python in (True, False)]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_installed", lambda: None)
        assert pip_program(tmp_path, same_python=True) == both[1]
    monkeypatch.setattr(module, "_bundled", lambda: None)
    assert pip_program(tmp_path, same_python=False) == both[0]
    monkeypatch.setattr(module, "_installed", lambda: None)
    with pytest.raises(PipMissing):
        pip_program(tmp_path, same_python=False)


def as_a_distribution_patches_it(folder: Path) -> None:
    """Write a wheel of this Python's pip whose authorities are a file that is not here."""
    own = Path(pip.__file__).parent
    folder.mkdir()
    with ZipFile(folder / "pip-1-py3-none-any.whl", "w") as patched:
        for path in own.rglob("*.py"):
            if path != own / module.AUTHORITIES:
                patched.write(path, Path("pip", path.relative_to(own)))
        core = "def where():\n    return '/nowhere/ca-certificates.crt'\n"
        patched.writestr(f"pip/{module.AUTHORITIES}", f"{core}contents = where\n")


def test_the_pip_of_a_distribution_needs_none_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_a_distribution_patches_it(tmp_path / "wheels")
    monkeypatch.setattr(
        module, "_bundled", lambda: (tmp_path / "wheels", "pip-1-py3-none-any.whl/pip")
    )
    found, program = pip_program(tmp_path, same_python=False)
    code = (
        "import pip._internal.cli.main, pip._vendor.requests.adapters as adapters; "
        "print(adapters.DEFAULT_CA_BUNDLE_PATH)"
    )
    place = found.source / program / ".."
    seen = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(place)!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(seen.stdout.strip()).resolve().is_relative_to(tmp_path)
    version = subprocess.run(
        [sys.executable, found.source / program, "--version"], capture_output=True, check=True
    )
    assert str(found.source).encode() in version.stdout


def installed(root: Path, uv: str, *, asked: str = "") -> str:
    """Install a list of one package as a job would, and return what was said."""
    wheel(root / "wheels", "wanted", "1.0")
    (root / "list").write_text("--no-index\n--find-links wheels\nwanted==1.0\n", encoding="utf-8")
    pip, program = pip_program(root, same_python=True)
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
    uv = uv_program()
    assert uv is not None
    said = installed(tmp_path, str(uv.source))
    assert "+ wanted==1.0" in said
    assert "pip" not in said


def test_pip_installs_what_uv_could_not(tmp_path: Path) -> None:
    said = installed(tmp_path, "/nowhere/uv", asked="2.7")
    assert "forge: uv could not install it, so pip tries" in said
    assert "Successfully installed wanted-1.0" in said
    assert "forge: the project requires Python 2.7, and here is Python 3." in said
