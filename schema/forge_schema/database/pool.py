"""A pool of connections to the queue's database, and how a statement is run on it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import monotonic
from typing import Any, Self

import psycopg
import stamina
from psycopg.abc import RV, PQGen
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from forge_schema.database.deadlines import Answers
from forge_schema.database.prepared import Prepared
from forge_schema.database.statements import statement
from forge_schema.model.errors import ForgeError

Row = dict[str, Any]

# A dropped connection is noticed within about seven seconds; without these it takes minutes.
KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 7000,
}
# A worker that died holding a row lock must not hold it for long. Every statement of the
# protocol is planned for an index, since the thin tables' statistics are stale by nature.
SESSION = """
    SET statement_timeout = '30s';
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '5s';
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
"""
# A report reads much of a table, and wants the planner's every means.
REPORT = """
    SET LOCAL plan_cache_mode = auto;
    SET LOCAL enable_seqscan = on;
    SET LOCAL enable_bitmapscan = on;
    SET LOCAL enable_hashjoin = on;
    SET LOCAL enable_mergejoin = on;
"""
CHECK_AFTER_S = 5.0
# As `SESSION` has it.
STATEMENT_S = 30.0
# Beyond every time-out of the server's: from one that is there, the answer has come by then.
ANSWER_S = 45.0
# Deadlocks and lock time-outs are OperationalErrors too.
TRANSIENT = (psycopg.OperationalError,)
# The codes of a server that is there and cannot do it now: it takes no writes, since it is a
# standby; it gave up a transaction; or it failed itself.
UNABLE = ("25", "XX")
# What is asked for is of a later version than the tables.
LACKS = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
)
# The server, or its tables, may be others than when the connection was made.
STALE = (psycopg.InternalError, psycopg.ProgrammingError, psycopg.NotSupportedError)


class Connection(psycopg.Connection[Row]):
    """A connection that runs the statements of `sql/`, and knows when it was last used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - psycopg's own
        super().__init__(*args, **kwargs)
        self.used_at = monotonic()
        self._statements: dict[str, Prepared] = {}

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return super().wait(gen, interval, ANSWER_S if timeout is None else timeout)

    def runner(self, name: str) -> Callable[[Mapping[str, object]], list[Row]]:
        """Return what runs a statement and returns its rows: prepared, where that is possible."""
        if self.prepare_threshold is None or not self.autocommit:
            return partial(self._run, name)
        prepared = self._statements.get(name)
        if prepared is None:
            prepared = self._statements[name] = Prepared(self, name, statement(name))
        return prepared.run

    def _run(self, name: str, params: Mapping[str, object]) -> list[Row]:
        cursor = self.execute(statement(name), params)
        # Not `description`, which looks up every column's type.
        return cursor.fetchall() if cursor.rownumber is not None else []


class DatabaseUnreachable(ForgeError):
    """The database does not answer, or can do nothing now."""

    code = "database_unreachable"


class ReportTooSlow(ForgeError):
    """A report was stopped at the limit of its time."""

    code = "report_too_slow"


class NotMigrated(DatabaseUnreachable):
    """The database lacks Forge's tables, or some of them; who runs already waits for these."""

    code = "database_not_migrated"


class Database:
    """Runs the statements of `sql/`, each in a transaction of its own.

    Args:
        url: a `postgresql://` URL.
        size: how many connections may be open at once.
        prepare: whether to prepare statements; off behind a transaction-mode pooler.
        statement_s: how long the server may work on a statement, in seconds.
        patience_s: how long a statement waits for a connection, in seconds.
        guard: surrounds each statement of `rows`; it may refuse one, and raise another error.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = 4,
        prepare: bool = True,
        statement_s: float = STATEMENT_S,
        patience_s: float = 15.0,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.url = url
        self._guard = guard
        self._limit = f"SET statement_timeout = {round(statement_s * 1000)}"
        self._answers = Answers(ANSWER_S)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            min_size=0,
            max_size=size,
            timeout=patience_s,
            open=False,
            configure=self._configure,
            check=self._check,
            kwargs={
                **KEEPALIVE,
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": 0 if prepare else None,
            },
            connection_class=Connection,
            reconnect_timeout=5,
        )

    def open(self) -> Self:
        """Open the pool.

        Raises:
            DatabaseUnreachable: the database does not answer.
            NotMigrated: it has no tables of Forge's.
        """
        try:
            with psycopg.connect(self.url, **KEEPALIVE) as probe:
                probe.execute(statement("health"))
        except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
            raise explained(error, self.url) from error
        self._pool.open()
        self._answers.start()
        return self

    def close(self) -> None:
        self._answers.end()
        self._pool.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rows(self, name: str, /, *, again: bool = False, **params: object) -> list[Row]:
        """Run a statement and return its rows.

        Args:
            name: the statement's file, without `.sql`.
            again: whether it may be run again when its answer was lost.
            **params: the statement's parameters.

        Raises:
            DatabaseUnreachable: the database does not answer, or can do nothing now.
            NotMigrated: its tables are those of an older version.
        """
        with self._guard(), self._explaining():
            try:
                with self._lent() as connection:
                    return connection.runner(name)(params)
            except TRANSIENT as error:
                if not again or not _may_pass(error):
                    raise
            return self._retried(name, params)

    def _retried(self, name: str, params: Mapping[str, object]) -> list[Row]:
        for attempt in stamina.retry_context(
            on=_may_pass, attempts=3, timeout=20, wait_initial=0.1, wait_max=2
        ):
            with attempt, self._lent() as connection:
                rows = connection.runner(name)(params)
        return rows

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        # Less than `connection()`: in autocommit mode there is nothing to commit or to roll back.
        connection = self._pool.getconn()
        self._answers.awaited(connection)
        try:
            yield connection
        except STALE as error:
            self._give_up(connection, error)
            raise
        finally:
            self._answers.heard(connection)
            self._return(connection)

    def one(self, name: str, /, *, again: bool = False, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        rows = self.rows(name, again=again, **params)
        return rows[0] if rows else None

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection in autocommit mode."""
        with self._pool.connection() as connection:
            yield connection
            connection.used_at = monotonic()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection inside a transaction; raises as `rows`."""
        with self._explaining(), self.connection() as connection:
            try:
                with connection.transaction():
                    yield connection
            except STALE as error:
                self._give_up(connection, error)
                raise

    @contextmanager
    def reporting(self) -> Iterator[Connection]:
        """Lend a connection inside a transaction whose statements are planned as usual.

        Raises:
            ReportTooSlow: it takes longer than a statement may.
            DatabaseUnreachable: the database does not answer.
        """
        try:
            with self.transaction() as connection:
                connection.execute(REPORT, prepare=False)
                yield connection
        except DatabaseUnreachable as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            raise ReportTooSlow(
                "the report took too long and was stopped",
                hint="bound it: `since` reads less than the whole history",
            ) from error

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if not explicable(error):
                raise
            raise explained(error, self.url) from error

    def _configure(self, connection: Connection) -> None:
        connection.execute(SESSION + self._limit, prepare=False)

    def _return(self, connection: Connection) -> None:
        connection.used_at = monotonic()
        self._pool.putconn(connection)

    def _give_up(self, connection: Connection, error: Exception) -> None:
        connection.close()
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            # The others go to the same server.
            self._pool.drain()

    def _check(self, connection: Connection) -> None:
        # A round trip to check costs as much as a claim, so only a connection that rested pays it.
        if monotonic() - connection.used_at > CHECK_AFTER_S:
            ConnectionPool.check_connection(connection)


def _may_pass(error: Exception) -> bool:
    # Who found no connection has waited already.
    return isinstance(error, TRANSIENT) and not isinstance(error, PoolTimeout)


def run(connection: Connection, name: str, params: Mapping[str, object]) -> list[Row]:
    """Run a statement on a connection and return its rows."""
    return connection.runner(name)(params)


def explicable(error: psycopg.Error) -> bool:
    """Tell whether an error speaks of the database; any other one speaks of the statement."""
    unable = isinstance(error, psycopg.InternalError) and (error.sqlstate or "").startswith(UNABLE)
    return unable or isinstance(error, (psycopg.OperationalError, *LACKS))


def explained(error: Exception, url: str) -> DatabaseUnreachable:
    """Say what is wrong with the database in words that help."""
    where = psycopg.conninfo.conninfo_to_dict(url)
    place = f"{where.get('host', 'localhost')}:{where.get('port', 5432)}/{where.get('dbname', '')}"
    first_line = str(error).strip().partition("\n")[0]
    if isinstance(error, LACKS):
        # The first table that is looked for.
        none = "alembic_version" in first_line
        lack = "has no Forge tables" if none else f"must be upgraded: {first_line}"
        return NotMigrated(f"the database {place} {lack}", hint="run `forge db upgrade` on it")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return DatabaseUnreachable(
            f"the database {place} takes no writes: {first_line}",
            hint="it is a standby, or was the primary: check where the URL leads",
        )
    return DatabaseUnreachable(
        f"the database {place} does not answer: {first_line}",
        hint="check the URL, that the server runs, and that this machine may reach it",
    )
