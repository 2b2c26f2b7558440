"""The SQL statements, one per file, named as the file, run by libpq itself."""

import json
import re
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult
from pydantic_core import from_json

SQL = Path(__file__).parents[1] / "sql"
DEFINITIONS = ("functions", "views")
# Placeholder for the table in statements that serve several: `thin:metric` replaces it.
TABLE = "measured"

PARAMETER = re.compile(r"%\((\w+)\)s")


@cache
def statement(name: str) -> str:
    """Return the statement in `sql/*/<name>.sql`; `<name>:<table>` fills in its table.

    Raises:
        KeyError: no file has this name.
    """
    file, _, table = name.partition(":")
    text = statements()[file].read_text(encoding="utf-8")
    return text.replace(TABLE, table) if table else text


@cache
def statements() -> dict[str, Path]:
    """Return the file of each statement by name."""
    folders = [folder for folder in SQL.iterdir() if folder.name not in DEFINITIONS]
    return {path.stem: path for folder in folders for path in folder.glob("*.sql")}


def definitions(folder: str) -> list[str]:
    """Return the SQL definitions in `sql/functions/` or `sql/views/`, ordered by file name."""
    return [path.read_text(encoding="utf-8") for path in _below(folder)]


def views() -> list[str]:
    """Return the names of the reporting views."""
    return [path.stem for path in _below("views")]


def _below(folder: str) -> list[Path]:
    return sorted((SQL / folder).rglob("*.sql"), key=lambda path: path.name)


class Prepared:
    """One statement with named parameters on one connection.

    A run blocks this thread until the answer arrives or the connection's timeouts end the wait.
    """

    def __init__(self, connection: psycopg.Connection[Any], name: str, query: str) -> None:
        self._pgconn = connection.pgconn
        self._name = f"forge_{name}"
        self._order = list(dict.fromkeys(PARAMETER.findall(query)))
        numbers = {parameter: f"${n}" for n, parameter in enumerate(self._order, 1)}
        self._query = PARAMETER.sub(lambda match: numbers[match[1]], query).encode()
        self._formats = [PyFormat.AUTO] * len(self._order)
        # Faster than a loop, but of one name it returns no tuple.
        self._in_order = itemgetter(*self._order) if len(self._order) > 1 else self._each
        # An integer's type depends on its size, so one statement may be prepared several times.
        self._names: dict[tuple[int, ...], bytes] = {}
        self._made = 0
        self._columns: list[str] = []
        self._transformer = Transformer(connection)

    def run(self, params: Mapping[str, object]) -> list[dict[str, Any]]:
        """Run it and return its rows.

        Raises:
            psycopg.Error: as a cursor would.
        """
        try:
            return self._rows(params)
        except psycopg.errors.FeatureNotSupported:
            # An upgrade gave a view other columns. Postgres found that before it did anything.
            self._names.clear()
            self._columns.clear()
            return self._rows(params)

    def _rows(self, params: Mapping[str, object]) -> list[dict[str, Any]]:
        adapt = self._transformer
        values = adapt.dump_sequence(self._in_order(params), self._formats)
        types = adapt.types or ()
        name = self._names.get(types) or self._prepare(types)
        result = self._pgconn.exec_prepared(
            name,
            values,  # type: ignore[arg-type] # a None means NULL, which the stubs do not know
            adapt.formats,
        )
        if result.status != ExecStatus.TUPLES_OK:
            self._check(result)
            return []
        adapt.set_pgresult(result)
        if not self._columns:
            self._columns = [(result.fname(n) or b"").decode() for n in range(result.nfields)]
        return adapt.load_rows(0, result.ntuples, self._row)

    def _each(self, params: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(params[name] for name in self._order)

    def _row(self, values: Any) -> dict[str, Any]:  # noqa: ANN401 - of every type
        return dict(zip(self._columns, values, strict=True))

    def _prepare(self, types: tuple[int, ...]) -> bytes:
        name = f"{self._name}_{self._made}".encode()
        self._made += 1
        self._check(self._pgconn.prepare(name, self._query, types))
        self._names[types] = name
        return name

    def _check(self, result: PGresult) -> None:
        if result.status == ExecStatus.COMMAND_OK:
            return
        if self._pgconn.status == ConnStatus.BAD or not result.error_field(
            DiagnosticField.SQLSTATE
        ):
            # An error without a code comes from libpq: the connection is lost.
            self._pgconn.finish()
            raise psycopg.OperationalError(result.get_error_message())
        raise psycopg.errors.error_from_result(result)


def load_json(data: str | bytes) -> Any:  # noqa: ANN401 - any document
    """Parse JSON, in about a quarter of the time that `json` takes."""
    try:
        return from_json(data)
    except ValueError:
        # It goes 200 levels deep, and Postgres goes deeper.
        return json.loads(data)
