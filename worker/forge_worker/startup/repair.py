"""Repair the worker's own folder: entries of the wrong type are renamed."""

from pathlib import Path
from time import time_ns

import structlog

from forge_worker.agent import spool, state_file
from forge_worker.machine import quarantine, speed
from forge_worker.startup import crashes
from forge_worker.worker_folder import ID_FILE, QUEUE_FILE

FOLDERS = ("jobs", "bundles", "images", "envs", "caches")
KEPT = (quarantine.FILE, speed.FILE, crashes.FILE, spool.FILE)
FILES = ("name", ID_FILE, QUEUE_FILE, state_file.NAME, *KEPT)

log = structlog.get_logger(__name__)


def put_aside(folder: Path) -> None:
    """Rename files where folders should be, and folders where files should be.

    The caller must hold the folder's lock. Damaged content is handled by its readers.
    """
    wrong = [folder / name for name in FOLDERS if _there(folder / name, is_dir=False)]
    wrong += [folder / name for name in FILES if _there(folder / name, is_dir=True)]
    for path in wrong:
        aside = path.with_name(f"{path.name}.broken-{time_ns()}")
        path.rename(aside)
        log.warning("foreign_file_moved_aside", path=str(aside))


def _there(path: Path, *, is_dir: bool) -> bool:
    return path.is_dir() if is_dir else path.exists() and not path.is_dir()
