"""Services that a test needs: if one is missing, the test skips on a laptop and fails in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest


def require(condition: object, what: str) -> None:
    """Continue only if `condition` holds.

    Raises:
        pytest.skip.Exception: it does not, and this is a developer's machine.
        pytest.fail.Exception: it does not, and CI is set, where a skip would hide a gap.
    """
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{what} is needed here and is missing", pytrace=False)
    pytest.skip(f"{what} is missing")


@cache
def docker_answers() -> bool:
    """Tell whether a Docker engine accepts this user."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    return asked.returncode == 0
