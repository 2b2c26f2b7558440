"""A Ray of a process's own: jobs on one machine, which share its home, would meet in Ray's files.

`ray.init()` joins the cluster that a file in its folder for temporary files names, or any of the
machine with `address="auto"`, unless that wants a token which the job does not have. A local one
takes its memory from the machine, and leaves a token in the home folder that other clusters demand.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forge_worker.runners.runner import RunSpec

# Of the job's memory: what Ray's own default is of a machine's. Ray refuses less than 75 MiB.
SHARE, LEAST_BYTES = 0.3, 80 << 20
# Whoever sets one of these has a cluster of their own.
THEIRS = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}


def private_ray(spec: RunSpec, tmp: str) -> dict[str, str]:
    """Return the variables for a job whose temporary files are in `tmp`."""
    variables = {
        "RAY_TMPDIR": tmp,
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(store_bytes(spec.memory_mb)),
    }
    if THEIRS & (spec.env.keys() | spec.secrets.keys()):
        return variables
    return {**variables, "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def store_bytes(memory_mb: int) -> int:
    """Return how much of a job's memory, in MiB, Ray's object store may have."""
    return max(LEAST_BYTES, int((memory_mb << 20) * SHARE))
