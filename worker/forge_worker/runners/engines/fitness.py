"""Whether jobs in containers of an engine can have their worker's folders, and their limits."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

import structlog

from forge_worker.runners.engines.address import listener_user
from forge_worker.runners.runner import StartFailed

if TYPE_CHECKING:
    from forge_worker.runners.engines.kind import Kind

UNLIMITED = "on control groups v1, a rootless engine limits neither memory nor CPUs of jobs"

log = structlog.get_logger(__name__)


def check_fit(kind: Kind) -> None:
    """Check that the jobs' folders would be theirs in a container; log which limits are missing.

    Raises:
        StartFailed: they would not.
        OSError: the engine is not there.
    """
    if not kind.limits:
        _warn(str(kind))
    if kind.rootless and (user := listener_user()) not in {None, os.geteuid()}:
        raise StartFailed(
            f"{kind} is of the user {user}, whose containers cannot have folders of this worker",
            hint=f"start the worker as the user {user}, or name another engine (DOCKER_HOST)",
        )


@cache
def _warn(engine: str) -> None:
    """Log it once for each engine."""
    log.warning("limits_not_enforced", engine=engine, note=UNLIMITED)
