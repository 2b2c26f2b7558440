"""Run a vendor's program; one that is missing, fails or hangs gives no answer."""

import shutil
import subprocess

import structlog

from forge_worker.privacy import without_credentials

PATIENCE_S = 20.0

log = structlog.get_logger(__name__)


def asked(name: str, *arguments: str) -> str | None:
    """Return what a program on PATH printed, or None if it gave no answer."""
    program = shutil.which(name)
    if program is None:
        return None
    try:
        told = subprocess.run(  # noqa: S603  a program of the machine's own, and no shell
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=without_credentials(),
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.info("program_failed", program=program, error=str(error))
        return None
    return told.stdout
