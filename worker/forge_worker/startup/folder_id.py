"""Who owns what is found on a machine: the worker's folder, by a random id that it keeps."""

import secrets
from pathlib import Path
from uuid import UUID

import structlog

from forge_worker.files.atomic import write_atomically

FILE, QUEUE = "id", "queue"

log = structlog.get_logger(__name__)


def known(folder: Path) -> UUID | None:
    """Return the folder's id; None where none was made yet."""
    return _read(folder / FILE)


def of(folder: Path) -> UUID:
    """Return the folder's id, made once. Whoever calls holds the folder's lock.

    Raises:
        OSError: the disk is full or faulty.
    """
    if (found := known(folder)) is not None:
        return found
    if (folder / FILE).exists():
        log.warning("the file of this folder's id is broken; it gets a new one")
    made = UUID(bytes=secrets.token_bytes(16), version=4)
    write_atomically(folder / FILE, f"{made}\n", durable=True)
    return made


def queue_served(folder: Path) -> UUID | None:
    """Return the id of the queue whose jobs lie in the folder, as far as that was kept."""
    return _read(folder / QUEUE)


def serves(folder: Path, queue: UUID) -> None:
    """Keep whose jobs lie in the folder from now on.

    Raises:
        OSError: the disk is full or faulty.
    """
    if queue_served(folder) != queue:
        write_atomically(folder / QUEUE, f"{queue}\n", durable=True)


def _read(path: Path) -> UUID | None:
    try:
        return UUID(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        return None
