"""Projects that a tool keeps: what is chosen where they are submitted is what runs on a worker."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from forge_client.project.environment import locks
from forge_client.project.environment.uv import Uv
from support.packages import sent, write

if TYPE_CHECKING:
    from support.workers.worker import Bed

# Builds a wheel of `mylib.py` without any package from an index.
BACKEND = """
import zipfile


def build_wheel(folder, config_settings=None, metadata_directory=None):
    files = {
        "mylib.py": open("mylib.py").read(),
        "mylib-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: mylib\\nVersion: 1\\n",
        "mylib-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
    }
    name = "mylib-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        for path, text in {**files, "mylib-1.dist-info/RECORD": ""}.items():
            archive.writestr(path, text)
    return name
"""
FILES = {
    "pyproject.toml": "[tool.uv.workspace]\nmembers = ['packages/*']\n[tool.uv]\nno-index = true\n",
    "packages/app/pyproject.toml": (
        "[project]\nname = 'app'\nversion = '1'\nrequires-python = '>=3.11'\n"
        "dependencies = ['mylib']\n[tool.uv.sources]\nmylib = {workspace = true}\n"
    ),
    # Its own source is not beside it in the job, and is not asked for.
    "packages/lib/pyproject.toml": (
        "[project]\nname = 'mylib'\nversion = '1'\nrequires-python = '>=3.11'\n"
        "dependencies = ['other']\n[tool.uv.sources]\nother = {workspace = true}\n"
        "[build-system]\nrequires = []\nbuild-backend = 'build'\nbackend-path = ['.']\n"
    ),
    "packages/lib/build.py": BACKEND,
    "packages/lib/mylib.py": "VALUE = 1\n",
    "packages/other/pyproject.toml": "[project]\nname = 'other'\nversion = '1'\n",
}
PROGRAM = "import sys, mylib; print('has', mylib.VALUE, 'in', sys.prefix)"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "locks", lambda: tmp_path / "locks")


def test_a_member_runs_with_the_others_as_they_are_and_uv_makes_no_second_environment(
    process: Bed,
) -> None:
    process.worker()
    app = write(process.root / "ws", FILES) / "packages" / "app"
    Uv.here().says("lock", folder=process.root / "ws")
    uv = str(Path(sys.executable).with_name("uv"))

    def ran(number: int) -> bytes:
        whole = sent(app)
        bundle = process.root / f"bundle-{number}"
        for one in whole.listing.files:
            (bundle / one.name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one.path, bundle / one.name)
        path = whole.requests[0].requirements
        told: dict[str, Any] = {"requirements": path, **whole.shown({"requirements": path})}
        job = process.submit(uv, "run", "python", "-c", PROGRAM, folder=bundle, **told)
        process.succeeds(job)
        return process.log(job)

    first = ran(1)
    assert b"has 1 in " + str(process.workers[0].folder / "envs").encode() in first
    assert b"Creating virtual environment" not in first
    # What is installed anew is the other member, although the lock is the same.
    (app.parent / "lib" / "mylib.py").write_text("VALUE = 22\n")
    assert b"has 22 in " in ran(2)
