"""Move a queue to another database and another store, with its history, logs and artifacts.

Most objects are copied first. Workers that reach the database themselves finish their jobs. Then
the old database is held: servers and the workers behind them wait, as if a standby took over. What
is left is copied, and the old database says where the queue is now. Until then, anything that goes
wrong lets the old queue go on; cut short, the same call continues.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from forge_schema.database import hold
from forge_schema.database.pool import Database, Row
from forge_schema.model.quantities import counted, size_text
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller
from forge_schema.service.service import Service
from forge_schema.storage import open_store

from forge_client.direct import checked_url, migration, postgres_programs, translated
from forge_client.direct.object_copy import copy
from forge_client.errors import ClientError, as_client_error
from forge_client.settings import QueueConnection

Say = Callable[[str], None]
MOVED = "forge moved this queue to "
CALLER = Caller("move", Role.ADMIN, "user:move")
LOOK_S = 1.0
# A partitioned table's rows are those of its partitions; which there are depends on the month.
TABLES = """
    SELECT relname FROM pg_class
    WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('job'))
    ORDER BY relname
"""


class Move:
    """One move."""

    def __init__(self, source: QueueConnection, target: QueueConnection, say: Say) -> None:
        self._from, self._to = checked_url(source.database_url), checked_url(target.database_url)
        with as_client_error():
            self._source, self._target = open_store(source.store()), open_store(target.store())
        self._say = say

    def run(self, folder: Path) -> None:
        """Move everything; a queue that has moved gets the objects that arrived late.

        The dump goes into `folder`.

        Raises:
            ClientError: the target is not empty, or differs from the source.
        """
        with translated():
            self._target.check()
            if self._has_moved():
                self._copy_objects()
                migration.end_filling(self._to)
                return
            migration.begin_filling(self._to)
            self._rehearse(folder / "tables.dump")
            self._copy_objects()
            drained = self._drain()
            try:
                self._switch(folder / "queue.dump")
            except BaseException:
                # A lost answer to the last step does not undo it.
                if not self._has_moved():
                    self._let_go(drained)
                raise
            self._withdraw(self._to, drained)
            migration.end_filling(self._to)

    def _rehearse(self, dump: Path) -> None:
        """Find out before anything is stopped whether the new server takes what the old one has."""
        postgres_programs.dump(self._from, dump, schema_only=True)
        migration.rehearse(self._to, dump)

    def cancel(self) -> None:
        """Let the old queue go on after a move that was cut short.

        Raises:
            ClientError: it has moved.
        """
        with translated():
            if self._has_moved():
                raise ClientError(
                    f"the queue has already moved: {hold.note(self._from)}",
                    hint="use it there",
                    code="already_moved",
                )
            with self._workers(self._from) as (rows, _):
                workers = [row["id"] for row in rows() if row["command"]]
            self._let_go(workers)

    def _has_moved(self) -> bool:
        return hold.note(self._from) == MOVED + self._place()

    def _place(self) -> str:
        where = psycopg.conninfo.conninfo_to_dict(self._to)
        return f"{where.get('host', 'localhost')}/{where.get('dbname', '')}"

    def _copy_objects(self) -> None:
        copied = copy(self._source, self._target)
        self._say(
            f"{counted(copied.all, 'object')}; copied {copied.copied}, {size_text(copied.bytes)}"
        )

    @contextmanager
    def _workers(self, url: str) -> Iterator[tuple[Callable[[], list[Row]], Service]]:
        """Give a look at the workers that reach the database themselves, and the verbs for them."""
        with Database(hold.writing_url(url), size=1) as database:
            service = Service(CALLER, lambda: database, lambda: self._source)
            yield lambda: database.rows("direct_workers"), service

    def _drain(self) -> list[int]:
        """Have these workers take nothing more, and wait until they hold nothing."""
        workers: list[int] = []
        with self._workers(self._from) as (rows, service):
            try:
                while busy := [row for row in rows() if not row["command"] or row["leases"]]:
                    for row in busy:
                        if not row["command"]:
                            workers.append(row["id"])
                            service.drain(row["id"])
                            self._say(f"worker {row['name']} was asked to drain")
                    time.sleep(LOOK_S)
            except BaseException:
                for worker_id in workers:
                    service.drain(worker_id, undo=True)
                raise
        return workers

    def _switch(self, dump: Path) -> None:
        hold.hold(self._from)
        self._say("the old database takes no more writes; workers and servers wait")
        postgres_programs.dump(self._from, dump)
        migration.fill(self._to, dump)
        self._copy_objects()
        self._compare()
        hold.set_note(self._from, MOVED + self._place())

    def _compare(self) -> None:
        ours, theirs = _counted(self._from), _counted(self._to)
        if different := [name for name in ours if ours[name] != theirs.get(name)]:
            raise ClientError(
                f"the copy of {different[0]} has {counted(theirs.get(different[0], 0), 'row')}, not"
                f" {ours[different[0]]}",
                hint="the old queue continues; please report this",
                code="copy_differs",
            )
        rows, tables = counted(sum(ours.values()), "row"), counted(len(ours), "table")
        self._say(f"{rows} in {tables}, the same in both")

    def _let_go(self, workers: list[int]) -> None:
        hold.release(self._from)
        self._withdraw(self._from, workers)
        self._say("the old queue continues")

    def _withdraw(self, url: str, workers: list[int]) -> None:
        with self._workers(url) as (_, service):
            for worker_id in workers:
                service.drain(worker_id, undo=True)


def _counted(url: str) -> dict[str, int]:
    """Return the number of rows of each table."""
    with hold.writing(url) as connection:
        names = [name for (name,) in connection.execute(TABLES)]
        counts = psycopg.sql.SQL(" UNION ALL ").join(
            psycopg.sql.SQL("SELECT {}, count(*) FROM {}").format(
                psycopg.sql.Literal(name), psycopg.sql.Identifier(name)
            )
            for name in names
        )
        return dict(connection.execute(counts))
