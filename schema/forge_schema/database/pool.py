"""A pool of connections to the queue's database that runs the statements of `sql/`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Self

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout

from forge_schema.database import connections
from forge_schema.database.connections import STATEMENT_S, AwaitedAnswers
from forge_schema.database.statements import Prepared, load_json, statement
from forge_schema.model.errors import ForgeError

Row = dict[str, Any]
# The name of a statement, and its parameters.
Statement = tuple[str, Mapping[str, object]]

CHECK_AFTER_S = 5.0
# Longer than every timeout of the server, so a live server has answered by then.
ANSWER_S = 45.0
# Deadlocks and lock timeouts are OperationalErrors too.
# As many connections keep a thread busy that makes and tests them.
BUSY = 16
TRANSIENT = (psycopg.OperationalError,)
LATE = (PoolTimeout, psycopg.errors.QueryCanceled)
# Codes of a server that answers but cannot run the statement now: it is a standby and takes no
# writes, it rolled the transaction back, or it failed internally.
UNABLE = ("25", "XX")
# The driver does not tell the code of a failure to connect, so servers that speak another language
# count as unreachable.
REFUSAL = re.compile(
    "authentication failed for user|no password supplied|no pg_hba.conf entry|pg_hba.conf rejects"
    '|role ".*" does not exist|is not permitted to log in|permission denied for database'
    "|certificate verify failed"
)
# The statement is newer than the tables.
LACKS = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
)
# The server or its tables may have changed since the connection was made.
STALE = (psycopg.InternalError, psycopg.ProgrammingError, psycopg.NotSupportedError)
# It takes no writes any more, or an upgrade gave a view columns that prepared statements lack.
LEAVES_ALL = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported)


class Connection(psycopg.Connection[Row]):
    """A connection that runs the statements of `sql/` and records when it was last used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - psycopg's own
        super().__init__(*args, **kwargs)
        self.used_at = monotonic()
        # When the pool is to see it again.
        self.seen_until = self.used_at
        self._statements: dict[str, Prepared] = {}
        set_json_loads(load_json, self)

    @classmethod
    def connect(  # type: ignore[override]  # it takes more
        cls,
        *args: Any,  # noqa: ANN401 - psycopg's own
        tried: Callable[[psycopg.Error | None], None] = lambda _: None,
        **kwargs: Any,  # noqa: ANN401 - as above
    ) -> Self:
        """Connect; `tried` is told of the failure, or of None."""
        try:
            connection = super().connect(*args, **kwargs)
            connections.read_as_usual(connection)
        except psycopg.Error as error:
            tried(error)
            raise
        tried(None)
        return connection

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return super().wait(gen, interval, ANSWER_S if timeout is None else timeout)

    def runner(self, name: str) -> Callable[[Mapping[str, object]], list[Row]]:
        """Return a callable that runs a statement and returns its rows; prepared if possible."""
        # Here if it was prepared before, which is all that most calls have to look for.
        prepared = self._statements.get(name)
        if prepared is None:
            if self.prepare_threshold is None or not self.autocommit:
                return partial(self._run, name)
            prepared = self._statements[name] = Prepared(self, name, statement(name))
        return prepared.run

    def together(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run statements in one transaction, and in one round trip if they can be prepared."""
        pipeline = nullcontext() if self.prepare_threshold is None else self.pipeline()
        with pipeline, self.transaction():
            cursors = [self.execute(statement(name), params) for name, params in statements]
        return [_fetched(cursor) for cursor in cursors]

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        yield from super()._deallocate(name)
        if name is None:
            # After a rollback or a DROP, psycopg deallocates all statements: also those of others.
            self._statements.clear()

    def _run(self, name: str, params: Mapping[str, object]) -> list[Row]:
        return _fetched(self.execute(statement(name), params))


def _fetched(cursor: psycopg.Cursor[Row]) -> list[Row]:
    # Not `description`, which looks up every column's type.
    return cursor.fetchall() if cursor.rownumber is not None else []


class DatabaseUnreachable(ForgeError):
    """The database does not answer, or cannot run statements now."""

    @property
    def is_silent(self) -> bool:
        """Whether no server answered: another statement would only wait in vain too."""
        return getattr(self.__cause__, "sqlstate", None) is None


class AccessRefused(DatabaseUnreachable):
    """The database does not let this role in, whenever it is asked."""

    code = DatabaseUnreachable.code


class ReportTooSlow(ForgeError):
    """A report exceeded its time limit and was stopped."""


class NotMigrated(DatabaseUnreachable):
    """The database lacks some of Forge's tables. Running processes wait until it has them."""

    code = "database_not_migrated"


class Database:
    """Runs the statements of `sql/`, each in a transaction of its own.

    Args:
        url: a `postgresql://` URL.
        size: maximum number of open connections.
        prepare: whether sessions are this process's own, so that statements can be prepared; off
            behind a transaction-mode pooler. One that refuses startup parameters is noticed.
        statement_s: time limit of a statement on the server, in seconds.
        patience_s: how long to wait for a connection, in seconds.
        guard: a context manager around each statement of `rows`; it may raise its own errors.
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
        self._statement_s = statement_s
        self._prepare = prepare
        self._limit_s: float | None = None
        self._answers = AwaitedAnswers(ANSWER_S, at_rest=self._return_spare)
        # The connection of the statement before, if nobody waits for one: for a single statement,
        # the pool takes a tenth of the Python time.
        self._spare: list[Connection] = []
        self._seeking = 0
        self._lock = Lock()
        # The pool only says that there was no connection in time.
        self._not_connected: psycopg.Error | None = None
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            min_size=0,
            max_size=size,
            timeout=patience_s,
            open=False,
            check=self._check,
            connection_class=Connection,
            reconnect_timeout=5,
            # They only connect and test connections. A program at rest has one.
            num_workers=1 + size // BUSY,
        )

    def open(self) -> Self:
        """Open the pool.

        Raises:
            DatabaseUnreachable: the database does not answer.
            NotMigrated: it does not have Forge's tables.
        """
        try:
            own = self._prepare and connections.owns_sessions(self.url)
            if not own:
                # Few are behind a pooler, and it logs through a large library.
                from forge_schema.database.pooler import keep_on_role  # noqa: PLC0415

                keep_on_role(self.url)
        except psycopg.Error as error:
            raise explained(error, self.url) from error
        # What is stored on the role has one limit for all.
        self._limit_s = None if own or self._statement_s == STATEMENT_S else self._statement_s
        self._pool.kwargs = self._parameters(own=own)
        self._pool.open()
        self._answers.start()
        return self

    def _parameters(self, *, own: bool) -> dict[str, Any]:
        options = connections.options_of(self.url, self._statement_s) if own else None
        return {
            **connections.KEEPALIVE,
            "autocommit": True,
            "row_factory": dict_row,
            "prepare_threshold": 0 if own else None,
            "options": options,
            "tried": self._tried,
        }

    def _tried(self, error: psycopg.Error | None) -> None:
        self._not_connected = error

    def close(self) -> None:
        self._answers.end()
        with self._lock:
            # Nothing is kept from here on.
            self._seeking += 1
        self._return_spare()
        self._pool.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rows(self, name: str, /, *, again: bool = False, **params: object) -> list[Row]:
        """Run a statement and return its rows.

        Args:
            name: the statement's file, without `.sql`.
            again: whether it may be run again if its answer was lost.
            **params: the statement's parameters.

        Raises:
            DatabaseUnreachable: the database does not answer, or cannot run statements now.
            NotMigrated: its tables are those of an older version.
        """
        with self._guard():
            try:
                with self._lent() as connection:
                    return connection.runner(name)(params)
            except psycopg.Error as error:
                if not explicable(error):
                    raise
                if not again or not _may_pass(error):
                    raise self._explained(error) from error
            with self._explaining():
                return self._retried(name, params)

    def together(self, *statements: Statement) -> list[list[Row]]:
        """Run statements in one transaction and return the rows of each; raises as `rows`."""
        with self._guard(), self._explaining():
            try:
                with self._lent() as connection:
                    return connection.together(statements)
            except psycopg.errors.FeatureNotSupported:
                # It was rolled back, and the next connection is a new one.
                with self._lent() as connection:
                    return connection.together(statements)

    def _retried(self, name: str, params: Mapping[str, object]) -> list[Row]:
        # Most processes lose no answer.
        import stamina  # noqa: PLC0415

        for attempt in stamina.retry_context(
            on=_may_pass, attempts=3, timeout=20, wait_initial=0.1, wait_max=2
        ):
            with attempt, self._lent() as connection:
                rows = connection.runner(name)(params)
        return rows

    def _lent(self) -> AbstractContextManager[Connection]:
        lending = _Lending(self)
        return lending if self._limit_s is None else _limited(lending, self._limit_s)

    def borrow(self) -> Connection:
        """Take a connection, which `give_back` gets; it is watched while it waits for an answer."""
        # Cheaper than `connection()`: in autocommit mode there is nothing to commit or roll back.
        connection = self._take_spare() or self._take()
        self._answers.awaited(connection)
        return connection

    def _take_spare(self) -> Connection | None:
        try:
            connection = self._spare.pop()
        except IndexError:
            return None
        if monotonic() - connection.used_at <= CHECK_AFTER_S:
            return connection
        self._pool.putconn(connection)
        return None

    def _take(self) -> Connection:
        with self._lock:
            self._seeking += 1
        try:
            # It may have been kept before this thread was counted.
            connection = self._take_spare() or self._pool.getconn()
        finally:
            with self._lock:
                self._seeking -= 1
        connection.seen_until = monotonic() + CHECK_AFTER_S
        return connection

    def give_back(self, connection: Connection, error: BaseException | None) -> None:
        """Give a connection back, after an error if there was one."""
        if isinstance(error, STALE):
            self._give_up(connection, error)
        self._answers.heard(connection)
        connection.used_at = now = monotonic()
        if error is not None or self._spare or self._seeking or now > connection.seen_until:
            self._pool.putconn(connection)
            return
        self._spare.append(connection)
        if self._seeking:
            self._return_spare()

    def _return_spare(self) -> None:
        with suppress(IndexError):
            self._pool.putconn(self._spare.pop())

    def row(self, name: str, /, *, again: bool = False, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""
        rows = self.rows(name, again=again, **params)
        return rows[0] if rows else None

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection in autocommit mode."""
        connection = self._take()
        try:
            with connection:
                yield connection
                connection.used_at = monotonic()
        finally:
            self._pool.putconn(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection inside a transaction. Raises the same errors as `rows`."""
        with self._explaining(), self.connection() as connection:
            try:
                with connection.transaction(), _within(connection, self._limit_s):
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
                connection.execute(connections.REPORT, prepare=False)
                yield connection
        except DatabaseUnreachable as error:
            if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise
            raise ReportTooSlow(
                "the report took too long and was stopped",
                hint="narrow it with `since`, so that it does not read the whole history",
            ) from error

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if not explicable(error):
                raise
            raise self._explained(error) from error

    def _explained(self, error: psycopg.Error) -> DatabaseUnreachable:
        """Return what the database caused as an error that says so."""
        cause = self._not_connected if isinstance(error, PoolTimeout) else None
        return explained(cause or error, self.url)

    def _give_up(self, connection: Connection, error: Exception) -> None:
        connection.close()
        if isinstance(error, LEAVES_ALL):
            # The other connections lead to the same server, and have the same statements.
            self._pool.drain()
            self._return_spare()

    def _check(self, connection: Connection) -> None:
        # A check is a round trip, as expensive as a claim, so only idle connections are checked.
        if monotonic() - connection.used_at > CHECK_AFTER_S:
            ConnectionPool.check_connection(connection)


class DatabaseUser:
    """What runs statements on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database


class DatabaseActor(DatabaseUser):
    """What changes rows on behalf of an actor, whom the audit trail names."""

    def __init__(self, database: Database, *, actor: str) -> None:
        super().__init__(database)
        self._actor = actor


class _Lending(DatabaseUser):
    """Lends a connection; a context manager made of a generator takes longer than the pool."""

    def __enter__(self) -> Connection:
        self._connection = self._database.borrow()
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._database.give_back(self._connection, error)


@contextmanager
def _limited(lending: AbstractContextManager[Connection], limit_s: float) -> Iterator[Connection]:
    with lending as connection, _within(connection, limit_s):
        yield connection


@contextmanager
def _within(connection: Connection, limit_s: float | None) -> Iterator[None]:
    with connection.transaction() if limit_s is not None else nullcontext():
        if limit_s is not None:
            connection.execute(connections.limit(limit_s), prepare=False)
        yield


def _may_pass(error: Exception) -> bool:
    # A caller that got no connection has already waited, and a statement that took too long would
    # take as long again.
    return isinstance(error, TRANSIENT) and not isinstance(error, LATE)


def run(connection: Connection, name: str, params: Mapping[str, object]) -> list[Row]:
    """Run a statement on a connection and return its rows."""
    return connection.runner(name)(params)


def explicable(error: psycopg.Error) -> bool:
    """Tell whether the database caused an error, rather than the statement."""
    unable = isinstance(error, psycopg.InternalError) and (error.sqlstate or "").startswith(UNABLE)
    return unable or isinstance(error, (psycopg.OperationalError, *LACKS, *LEAVES_ALL))


def explained(error: Exception, url: str) -> DatabaseUnreachable:
    """Turn a driver's error into one that says what is wrong with the database."""
    where = psycopg.conninfo.conninfo_to_dict(url)
    place = f"{where.get('host', 'localhost')}:{where.get('port', 5432)}/{where.get('dbname', '')}"
    first_line = str(error).strip().partition("\n")[0]
    if isinstance(error, LACKS):
        # The first table that a process looks for.
        none = "alembic_version" in first_line
        lack = "has no Forge tables" if none else f"must be upgraded: {first_line}"
        return NotMigrated(f"the database {place} {lack}", hint="run `forge db upgrade` on it")
    if isinstance(error, psycopg.errors.FeatureNotSupported):
        return DatabaseUnreachable(
            f"the database {place} has just been upgraded: {first_line}", hint="try again"
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return DatabaseUnreachable(
            f"the database {place} takes no writes: {first_line}",
            hint="it is a standby, was the primary, or its queue was moved: check the URL",
        )
    if REFUSAL.search(str(error)):
        reason = re.split(r"FATAL:\s+", first_line)[-1]
        return AccessRefused(
            f"the database {place} refuses this role: {reason}",
            hint="check the user and the password in the URL, and pg_hba.conf on the server",
        )
    return DatabaseUnreachable(
        f"the database {place} does not answer: {first_line}",
        hint="check the URL, that the server runs, and that this machine may reach it",
    )
