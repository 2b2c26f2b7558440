"""The functions' zip, built once for all processes of a test run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.authorities import with_authorities
from support.locked import locked
from support.services import require

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "infra" / "lambda_zip.py"
RUNS_ON = (3, 11)
BUILD_S = 300
# The script, with most libraries left out, which are most of its work.
OF_A_PART = """
import re, sys
import lambda_zip
listed = lambda_zip.REQUIREMENTS.read_text(encoding="utf-8")
names = re.findall(r"^([a-z0-9-]+)==", listed, re.MULTILINE)
lambda_zip.LEFT_OUT = frozenset(names) - {"certifi", "jinja2"}
lambda_zip.main()
"""
# pip's message when it cannot download a package that is missing from its cache.
NOT_REACHED = ("Could not find a version", "No matching distribution", "Connection")


def build(output: Path) -> str:
    """Build the zip and return the script's output.

    Raises:
        pytest.skip.Exception: the packages are not available here.
    """
    return _ran([str(SCRIPT), "--output", str(output)], {})


def build_a_part(output: Path, **env: str) -> str:
    """Build a zip of our own code and two libraries, and return the script's output."""
    where = {"PYTHONPATH": str(SCRIPT.parent)}
    return _ran(["-c", OF_A_PART, "--output", str(output)], where | env)


def _ran(script: list[str], env: dict[str, str]) -> str:
    if sys.version_info[:2] != RUNS_ON:
        # Not for `require`: a run with another interpreter may leave this test out.
        pytest.skip("the functions run on Python 3.11")
    ended = subprocess.run(
        [sys.executable, *script],
        env=with_authorities() | env,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if ended.returncode and any(said in ended.stderr for said in NOT_REACHED):
        require(None, "the package index")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def unpacked(shared: Path) -> Path:
    """Return the zip's content, in a folder that all test processes share, beside the zip."""
    folder = shared / "lambda"
    with locked(shared / "lambda.lock"):
        if not folder.exists():
            build(shared / "lambda.zip")
            with ZipFile(shared / "lambda.zip") as archive:
                archive.extractall(shared / "lambda.partial")
            (shared / "lambda.partial").rename(folder)
    return folder
