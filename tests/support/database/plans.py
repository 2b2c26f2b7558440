"""The work of each statement that ran: which tables it read, how, and how many rows."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Any

import psycopg
from forge_schema.database.pool import Connection
from forge_schema.database.statements import statement
from psycopg import sql
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest
    from psycopg.abc import Query

PARAMETER = re.compile(r"%\((\w+)\)s")
MONTH = re.compile(r"_(\d{4}_\d{2}|default)$")
READS = re.compile(r"\s*(--[^\n]*\n\s*)*(SELECT|WITH)\b", re.IGNORECASE)
# These grow with every job ever submitted.
HISTORY = frozenset(
    {
        "artifact",
        "attempt_row",
        "checkpoint",
        "event",
        "former_worker",
        "job",
        "log_chunk",
        "metric",
        "outcome",
        "result",
        "sample",
        "test_result",
    }
)
# These hold waiting and running jobs, however long the history is.
PLACES = frozenset({"ready", "scheduled", "held", "lease"})
# A partition this small may be read faster than its index: a future month has no rows at all, and
# on some days the first month of the past has only those of two or three days.
SMALL = 6_000
# The number of rows that a page reads before it says that there are more.
MOST_ROWS = 10_000


@dataclass(frozen=True)
class Scan:
    """One scan of a table; `read` counts the rows examined, kept or not.

    `month` is that of the table's partition, if it has any.
    """

    table: str
    month: str
    kind: str
    read: int
    bounded: bool

    @property
    def whole(self) -> bool:
        """Whether it reads the whole table, by its pages or by an index."""
        return not self.bounded


@dataclass(frozen=True)
class Plan:
    """The work of one statement, from EXPLAIN (ANALYZE)."""

    name: str
    root: Mapping[str, Any]

    def scans(self) -> list[Scan]:
        """Return the scans that were executed."""
        return list(_scans(self.root, limited=False))

    def read(self, tables: frozenset[str] = HISTORY) -> dict[str, int]:
        """Return how many rows of each of these tables were read."""
        counted: dict[str, int] = {}
        for scan in self.scans():
            if scan.table in tables:
                counted[scan.table] = counted.get(scan.table, 0) + scan.read
        return counted

    def faults(self, most: int = MOST_ROWS) -> list[str]:
        """List unbounded reads of the history, and tables with more than `most` rows read."""
        whole = [
            scan
            for scan in self.scans()
            if scan.table in HISTORY and scan.whole and scan.read > SMALL
        ]
        tables = [scan.table for scan in whole]
        # A bound of time leaves one month, and a planner may find it faster to read all of that.
        found = [
            f"goes through the whole of {scan.table} ({scan.kind})"
            for scan in whole
            if not scan.month or tables.count(scan.table) > 1
        ]
        found += [
            f"looks at {rows} rows of {table}, of which it may {most}"
            for table, rows in self.read().items()
            if rows > most
        ]
        return found

    def __str__(self) -> str:
        return "\n".join(_lines(self.root, 0))


def assert_bounded(plans: list[Plan], most: int = MOST_ROWS) -> None:
    """Check that no statement's work grows with the history.

    Raises:
        AssertionError: a statement's work does; the message shows its plan and what to do.
    """
    assert plans, "no statement was run: nothing was shown"
    for plan in plans:
        if faults := plan.faults(most):
            raise AssertionError(
                f"{plan.name} {'; '.join(faults)}. Give it an index (in the newest migration and in"
                " the model), a bound of time, or a LIMIT below what it joins. What was done:\n"
                f"{plan}"
            )


def explained(connection: psycopg.Connection[Any], name: str, params: Mapping[str, object]) -> Plan:
    """Run a statement of `sql/` as a prepared one, roll it back, and return its plan."""
    return _prepared(connection, name, statement(name), params)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    """Yield a list that collects the plan of every statement run in this process.

    Each statement runs twice: first explained and rolled back, under the settings of the connection
    that it was meant for.
    """
    seen: list[Plan] = []
    busy = local()

    def look(connection: Connection, plan: Any) -> None:  # noqa: ANN401  a callable
        busy.now = True
        try:
            seen.append(plan(connection))
        finally:
            busy.now = False

    runner, execute = Connection.runner, Connection.execute

    def run_watched(self: Connection, name: str) -> Any:  # noqa: ANN401
        def run(params: Mapping[str, object]) -> Any:  # noqa: ANN401
            look(self, lambda it: explained(it, name, params))
            busy.now = True
            try:
                return runner(self, name)(params)
            finally:
                busy.now = False

        return run

    def execute_watched(self: Connection, query: Query, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        text = query.as_string(self) if isinstance(query, sql.Composable) else query
        if not getattr(busy, "now", False) and isinstance(text, str) and READS.match(text):
            look(self, lambda it: _plain(it, text, *args[:1]))
        # psycopg drops the statements that it prepared by itself at the next rollback, and makes
        # the server drop all statements, also those that the product has prepared.
        return execute(self, query, *args, **{"prepare": False, **kwargs})

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "runner", run_watched)
        patch.setattr(Connection, "execute", execute_watched)
        yield seen


# On a busy machine this process may pause for longer than a queue's transaction may.
UNHURRIED = b"SET LOCAL idle_in_transaction_session_timeout = 0"
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "


def _prepared(
    connection: psycopg.Connection[Any], name: str, text: str, params: Mapping[str, object]
) -> Plan:
    names = list(dict.fromkeys(PARAMETER.findall(text)))
    numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    values = sql.SQL(", ").join(sql.Literal(params[name]) for name in names)
    asked = sql.SQL(EXPLAIN + "EXECUTE looked_at" + ("({})" if names else "")).format(values)
    with connection.transaction(force_rollback=True):
        connection.execute(UNHURRIED, prepare=False)
        connection.execute(f"PREPARE looked_at AS {numbered}".encode(), prepare=False)
        try:
            told = connection.execute(asked, prepare=False).fetchone()
        finally:
            if connection.info.transaction_status == TransactionStatus.INTRANS:
                connection.execute("DEALLOCATE looked_at", prepare=False)
    return Plan(name, _root(told))


def _plain(connection: psycopg.Connection[Any], text: str, params: Any = None) -> Plan:  # noqa: ANN401
    with connection.transaction(force_rollback=True):
        connection.execute(UNHURRIED, prepare=False)
        asked = (EXPLAIN + text).encode()
        told = connection.execute(asked, params, prepare=False).fetchone()
    return Plan(" ".join(text.split())[:80], _root(told))


def _root(told: Any) -> Mapping[str, Any]:  # noqa: ANN401  a row of any kind
    assert told is not None
    (document,) = told.values() if isinstance(told, dict) else told
    root: Mapping[str, Any] = document[0]["Plan"]
    return root


def _scans(node: Mapping[str, Any], *, limited: bool) -> Iterator[Scan]:
    loops = node["Actual Loops"]
    if "Relation Name" in node and loops and "Scan" in node["Node Type"]:
        yield _scan(node, loops, limited=limited)
    below = node["Node Type"] == "Limit" or (limited and node["Node Type"] not in STOPS)
    for part in node.get("Plans", ()):
        yield from _scans(part, limited=below)


# These nodes read all their input before they return a row.
STOPS = {"Sort", "Aggregate", "Hash", "WindowAgg", "SetOp"}


def _scan(node: Mapping[str, Any], loops: int, *, limited: bool) -> Scan:
    gone = sum(
        node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck", "Join Filter")
    )
    bounded = limited or any(f"{how} Cond" in node for how in ("Index", "Recheck", "TID"))
    month = MONTH.search(node["Relation Name"])
    return Scan(
        table=MONTH.sub("", node["Relation Name"]),
        month=month[1] if month else "",
        kind=node["Node Type"],
        read=round((node["Actual Rows"] + gone) * loops),
        bounded=bounded and node["Node Type"] != "Seq Scan",
    )


SHOWN = ("Index Cond", "Recheck Cond", "Filter", "Join Filter")


def _lines(node: Mapping[str, Any], depth: int) -> Iterator[str]:
    what = [node["Node Type"]]
    what += [f"using {node['Index Name']}"] if "Index Name" in node else []
    what += [f"on {node['Relation Name']}"] if "Relation Name" in node else []
    gone = sum(count for key, count in node.items() if key.startswith("Rows Removed"))
    counts = f"rows {node['Actual Rows']} loops {node['Actual Loops']}"
    counts += f" removed {gone}" if gone else ""
    yield f"{'  ' * depth}{' '.join(what)} ({counts})"
    for key in SHOWN:
        if key in node:
            yield f"{'  ' * depth}    {key}: {node[key][:160]}"
    for part in node.get("Plans", ()):
        yield from _lines(part, depth + 1)
