"""Copy objects from one store to another, and read each one back."""

import hashlib
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from forge_schema.storage import Store
from forge_schema.storage.keys import PROBE
from forge_schema.storage.store import ObjectMissing, StoredObject

from forge_client.errors import ClientError

AT_ONCE = 8
BATCH = 256
TABLE = "CREATE TABLE object (key TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID"
# A store may name an object on two pages, if it is replaced meanwhile.
ADD = "INSERT OR REPLACE INTO object VALUES (?, ?)"
SIZE = "SELECT size FROM object WHERE key = ?"


@dataclass
class Copied:
    """How many objects were copied, and how many the source has."""

    copied: int = 0
    bytes: int = 0
    all: int = 0


class ObjectListing:
    """The objects that a store had when it was listed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def size(self, key: str) -> int | None:
        """Return an object's size in bytes, or None if it was not there."""
        row = self._connection.execute(SIZE, (key,)).fetchone()
        return row[0] if row else None


def copy(source: Store, target: Store) -> Copied:
    """Copy the objects that `target` lacks. Objects never change, so it may be cut short and rerun.

    Raises:
        ClientError: an object reads differently from the target.
        StoreError: a store does not answer.
    """
    done = Copied()
    with (
        ThreadPoolExecutor(AT_ONCE, thread_name_prefix="copy") as threads,
        tempfile.TemporaryDirectory(prefix="forge-copy-") as folder,
        listed(target, "", Path(folder)) as there,
    ):
        for batch in _batches(_lacking(source, there, done)):
            sizes = threads.map(lambda item: _copy_one(source, target, item, Path(folder)), batch)
            for size in sizes:
                done.copied += size is not None
                done.bytes += size or 0
    return done


def _lacking(source: Store, there: ObjectListing, done: Copied) -> Iterator[StoredObject]:
    for ours in source.list(""):
        if ours.key.startswith(PROBE):
            continue
        done.all += 1
        if there.size(ours.key) != ours.size:
            yield ours


def _batches(objects: Iterator[StoredObject]) -> Iterator[list[StoredObject]]:
    batch: list[StoredObject] = []
    for item in objects:
        batch.append(item)
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def _copy_one(source: Store, target: Store, item: StoredObject, folder: Path) -> int | None:
    """Copy an object and return its size; None if it has been removed meanwhile."""
    path = folder / secrets.token_hex(12)
    try:
        source.get_file(item.key, path)
        target.put_file(item.key, path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        _check(target, item.key, digest)
    except ObjectMissing:
        return None
    finally:
        path.unlink(missing_ok=True)
    return item.size


def _check(target: Store, key: str, digest: bytes) -> None:
    hashed = hashlib.sha256()
    for chunk in target.stream(key):
        hashed.update(chunk)
    if hashed.digest() != digest:
        target.delete(key)
        raise ClientError(
            f"{key} reads differently from {target.url} than it was written",
            hint="check that store's disk; then run the command again",
            code="copy_differs",
        )


@contextmanager
def listed(store: Store, prefix: str, folder: Path) -> Iterator[ObjectListing]:
    """List the objects below a prefix into a file in `folder`, which the caller removes.

    Stores list in different orders, and may hold more objects than fit in memory.
    """
    with closing(sqlite3.connect(folder / "listing.db")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute(TABLE)
        connection.executemany(ADD, ((stored.key, stored.size) for stored in store.list(prefix)))
        yield ObjectListing(connection)
