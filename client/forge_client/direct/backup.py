"""Back a queue up into a folder, and restore it from there.

The folder has the objects, in `store`, and a dump of the database for each backup. Objects never
change, so a dump needs those that were there at its moment. They are copied before it and again
after it, so none is missing but those that were removed in between.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from forge_schema.database import hold
from forge_schema.database.pool import Database
from forge_schema.database.statements import statement
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted, size_text
from forge_schema.read.audit import Audit
from forge_schema.read.overview import UNNAMED_STORE, other_store
from forge_schema.storage import Store, open_store
from forge_schema.storage.file_store import FileStore

from forge_client.direct import checked_url, migration, postgres_programs, translated
from forge_client.direct.object_copy import copy, listed
from forge_client.errors import ClientError, as_client_error
from forge_client.settings import QueueConnection

Say = Callable[[str], None]
DUMPS = "queue-*.dump"
STORE = "store"
JOBS = "jobs/"
ACTOR = "restore"
BATCH = 10_000


@dataclass(frozen=True)
class Restored:
    """What a restore did. `missing` objects are named by the queue, and not in the store."""

    dump: str
    missing: int
    next_token: int
    next_job: int


def backup(connection: QueueConnection, folder: Path, say: Say) -> Path:
    """Add a backup to a folder and return its dump. Workers go on meanwhile.

    Cut short, it leaves the earlier backups in the folder whole.

    Raises:
        ClientError: the database or a store does not answer, an object reads differently, or the
            store is not the queue's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    dump = folder.absolute() / f"queue-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.dump"
    unnamed = dump.with_name(f".{dump.name}")
    with translated():
        with as_client_error():
            source, target = open_store(connection.store()), _store_in(folder)
        _require_its_own(checked_url(connection.database_url), source)
        before = copy(source, target)
        try:
            postgres_programs.dump(checked_url(connection.database_url), unnamed)
            after = copy(source, target)
            unnamed.replace(dump)
        finally:
            unnamed.unlink(missing_ok=True)
    new, nbytes = before.copied + after.copied, before.bytes + after.bytes
    say(f"{dump.name}: {size_text(dump.stat().st_size)}")
    say(f"{counted(after.all, 'object')}; {new} of them new, {size_text(nbytes)}")
    return dump


def _require_its_own(url: str, source: Store) -> None:
    """Refuse a store without the queue's objects: the backup would lack them."""
    other = ""
    # What else is wrong with the database, its dump says.
    with suppress(ForgeError), Database(url, size=1, prepare=False) as database:
        other = other_store(database, source.url, source.size)
    if other not in {"", UNNAMED_STORE}:
        raise ClientError(
            f"the queue keeps its objects in {other}, not in {source.url}",
            hint="give that one as --store-url, or copy its objects into this one",
            code="store_elsewhere",
        )


def restore(connection: QueueConnection, folder: Path, say: Say) -> Restored:
    """Fill an empty database, and a store, from the newest backup in a folder.

    The queue then knows nothing of what happened since. What it handed out in that time is void: it
    has no such leases, and gives none of their numbers out again. Cut short, it may be run again.

    Raises:
        ClientError: the database is not empty, or there is no backup in the folder.
    """
    url, dump = checked_url(connection.database_url), _newest(folder)
    with translated():
        with as_client_error():
            target = open_store(connection.store())
        migration.begin_filling(url)
        migration.rehearse(url, dump)
        copied = copy(_store_in(folder), target)
        new = f"{copied.copied} of them were not in {target.url} yet"
        say(f"{counted(copied.all, 'object')}; {new}")
        migration.fill(url, dump)
        restored = _started_anew(url, target, dump.name)
        migration.end_filling(url)
    return restored


def _store_in(folder: Path) -> Store:
    return FileStore(folder.absolute() / STORE)


def _newest(folder: Path) -> Path:
    # Their names sort by time.
    if dumps := sorted(folder.absolute().glob(DUMPS)):
        return dumps[-1]
    raise ClientError(
        f"there is no backup in {folder}",
        hint="name the folder that was given to `forge backup`",
        code="backup_missing",
    )


def _started_anew(url: str, store: Store, dump: str) -> Restored:
    """Void what was handed out after the backup, and record the restore in the audit trail."""
    jobs = (item.key.split("/")[1] for item in store.list(JOBS))
    stored = max((int(job) for job in jobs if job.isdecimal()), default=0)
    with Database(hold.writing_url(url), size=1, prepare=False) as database:
        (raised,) = database.rows("raise_numbers", stored=stored)
        detail = {"dump": dump, "token": raised["token"], "job": raised["job"]}
        Audit(database).note(ACTOR, "restored", detail)
    return Restored(dump, _missing(url, store), raised["token"] + 1, raised["job"] + 1)


def _missing(url: str, store: Store) -> int:
    """Count the objects that the queue names and the store lacks."""
    with (
        tempfile.TemporaryDirectory(prefix="forge-restore-") as folder,
        listed(store, JOBS, Path(folder)) as there,
        psycopg.connect(url) as connection,
        connection.cursor("stored_keys") as cursor,
    ):
        cursor.itersize = BATCH
        named = cursor.execute(statement("stored_keys"))
        return sum(there.size(key) is None for (key,) in named)
