"""The wheel and the sdist: complete, and enough to run a job."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import psycopg
from support.cloud.cloudformation import INFRA

# Beside the code: what is read at run time.
DATA = (
    "forge_schema/sql/claim/finish.sql",
    "forge_schema/database/migrations/versions/0001_first_schema.py",
    "forge_schema/database/migrations/first_schema/types.sql",
    "forge_functions/dashboard/templates",
    "forge_functions/dashboard/static",
    "forge_client/py.typed",
    "hydra_plugins/forge_launcher.py",
)


def test_the_wheel_made_of_the_sdist_runs_a_job_in_an_environment_without_our_code(
    tmp_path: Path,
) -> None:
    packages = Path(psycopg.__file__).parents[1]
    ended = subprocess.run(
        [
            sys.executable,
            INFRA / "release" / "make.py",
            "--output",
            tmp_path,
            "--packages",
            packages,
            *("--images", "--python", sys.executable, "--python", "3.99"),
        ],
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nobody"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "installed, ran a job" in ended.stdout
    # What cannot be had is said.
    assert "Python 3.99 is neither here nor downloaded" in ended.stdout
    assert "no images: no Docker engine answers" in ended.stdout
    (wheel,) = tmp_path.glob("*.whl")
    names = ZipFile(wheel).namelist()
    for wanted in DATA:
        assert any(name.startswith(wanted) for name in names), wanted
    assert not [name for name in names if name.startswith(("tests", "infra", "docs"))]
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())
    assert "forge submit" in (tmp_path / "man" / "forge.1").read_text()
    completion = tmp_path / "completion" / "bash" / "forge"
    assert subprocess.run(["bash", "-n", completion], check=False).returncode == 0
    head, _, text = (tmp_path / "NOTES.md").read_text().partition("\n\n")
    assert head.startswith("# Forge ")
    assert "\n## [" not in text
    assert f"- `{wheel.name}`: {wheel.stat().st_size / 1e6:.1f} MB." in text
