"""Databases that behave like ours, but keep a transaction open or lose an answer."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import psycopg
from forge_schema.database.pool import Connection, Database, Row, Statement, explained, run
from psycopg.rows import dict_row
from support.database.session import SESSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

AFRESH = "RESET ALL; UNLISTEN *"
# A verb with a statement for its common case, which goes by the name of the other.
ONE_VERB = {"submit_alike": "submit"}


class Runs(Protocol):
    """A database that sees each statement."""

    def run(self, connection: Connection, name: str, params: Mapping[str, object]) -> list[Row]: ...


class Watched:
    """A connection that sends its statements through a test's database."""

    def __init__(self, database: Runs, connection: Connection) -> None:
        self._database = database
        self._connection = connection

    def runner(self, name: str) -> Callable[[Mapping[str, object]], list[Row]]:
        return partial(self._database.run, self._connection, name)


class WatchedGroups(Watched):
    """Watches what runs together, too."""

    _database: Recorded

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return self._database.run_together(self._connection, statements)


class Recorded(Database):
    """Records the statements that it runs, and loses the answers that a test tells it to lose.

    A lost answer belongs to a committed statement: the caller sees the connection break.
    `meanwhile` maps a statement's name to a call that others make after it ran, before its caller
    continues. The two statements of a verb have one name.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, size=16)
        self.ran: list[tuple[str, Mapping[str, object]]] = []
        self.losing: list[str] = []
        self.meanwhile: dict[str, Callable[[], object]] = {}

    def forget(self) -> None:
        """Forget what was recorded, and what was to be lost."""
        self.ran, self.losing, self.meanwhile = [], [], {}

    def lose(self, *names: str) -> None:
        """Lose the next answer of each named statement; `transaction` names a transaction."""
        self.losing += names

    def names(self) -> list[str]:
        """Return the names of the statements run so far, and clear them."""
        names = [name for name, _ in self.ran]
        self.ran.clear()
        return names

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        with super()._lent() as connection:
            yield cast("Connection", WatchedGroups(self, connection))

    def run(self, connection: Connection, name: str, params: Mapping[str, object]) -> list[Row]:
        """Run a statement, and lose its answer if a test asked for that."""
        rows = run(connection, name, params)
        name = ONE_VERB.get(name, name)
        self.ran.append((name, params))
        if others := self.meanwhile.pop(name, None):
            others()
        self._lose(name)
        return rows

    def run_together(
        self, connection: Connection, statements: Sequence[Statement]
    ) -> list[list[Row]]:
        """Run statements in one transaction, and lose its answer as `run`."""
        rows = connection.together(statements)
        self.ran.extend(statements)
        for name, _ in statements:
            self._lose(name)
        return rows

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with super().transaction() as connection:
            yield connection
        try:
            self._lose("transaction")
        except psycopg.OperationalError as error:
            raise explained(error, self.url) from error

    def _lose(self, name: str) -> None:
        if name in self.losing:
            self.losing.remove(name)
            raise psycopg.OperationalError("server closed the connection unexpectedly")


class Kept(Database):
    """The connections of a server, which the next one on the same queue uses, too."""

    def __init__(self, url: str, size: int, statement_s: float, free: list[Kept]) -> None:
        super().__init__(url, size=size, statement_s=statement_s)
        self.kind = (size, statement_s)
        self._free = free

    def close(self) -> None:
        """Keep it for the next server."""
        self._free.append(self)

    def end(self) -> None:
        """Close it."""
        super().close()


def quiet(database: Database) -> list[int] | None:
    """Return the processes of a database's connections, each as it began, if all are idle."""
    # The one that is kept for the next statement is idle, too.
    database._return_spare()
    counts = database._pool.get_stats()
    if counts["pool_size"] != counts["pool_available"]:
        return None
    with ExitStack() as stack:
        lent = [stack.enter_context(database.connection()) for _ in range(counts["pool_size"])]
        for connection in lent:
            connection.execute(AFRESH, prepare=False)
        return [connection.info.backend_pid for connection in lent]


class Pinned(Database):
    """Runs everything on one connection, in its open transaction."""

    def __init__(self, url: str, connection: Connection) -> None:
        super().__init__(url)
        self._pinned = connection

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        yield self._pinned

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        yield self._pinned


@contextmanager
def holding(url: str) -> Iterator[Pinned]:
    """Yield a database whose statements are committed together when the block ends."""
    with Connection.connect(url, row_factory=dict_row) as connection:
        connection.execute(SESSION)
        yield Pinned(url, connection)
