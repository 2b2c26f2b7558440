"""The commands of `forge-worker`, such as `--status`."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from support.warm.process import Warm

if TYPE_CHECKING:
    from support.workers.worker import Bed


def asked(made: Bed, *flags: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Ask the program something about the folder of worker `one`."""
    with Warm(
        "forge_worker.main",
        ["forge-worker", *flags],
        env={**os.environ, **made.settings("one")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate(timeout=120)
    done = subprocess.CompletedProcess(flags, process.returncode, out, err)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
