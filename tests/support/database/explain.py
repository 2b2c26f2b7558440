"""The buffers and rows that a queue statement touches, by EXPLAIN on the plan that workers get."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from forge_schema.database.statements import statement
from psycopg import sql
from support.database.session import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

PARAMETER = re.compile(r"%\((\w+)\)s")


def buffers(
    connection: psycopg.Connection[Any], name: str, params: Mapping[str, object]
) -> tuple[int, int]:
    """Run a statement and roll it back; return the buffers it touched and the rows it returned."""
    plan = planned(connection, name, params)
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], plan["Actual Rows"]


def rows_handled(
    connection: psycopg.Connection[Any], name: str, params: Mapping[str, object]
) -> int:
    """Run a statement and roll it back; return how many rows all steps of its plan looked at."""
    return sum(_rows(planned(connection, name, params)))


def _rows(node: Mapping[str, Any]) -> Iterator[int]:
    left_out = sum(node.get(f"Rows Removed by {what}", 0) for what in ("Filter", "Join Filter"))
    yield (node["Actual Rows"] + left_out) * node["Actual Loops"]
    for inner in node.get("Plans", ()):
        yield from _rows(inner)


def planned(
    connection: psycopg.Connection[Any], name: str, params: Mapping[str, object]
) -> dict[str, Any]:
    """Run a statement and roll it back; return its plan.

    It is the generic plan of a prepared statement, under the settings of `Database`.
    """
    connection.execute(SESSION)
    names = list(dict.fromkeys(PARAMETER.findall(statement(name))))
    text = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", statement(name))
    connection.execute("DEALLOCATE ALL")
    connection.execute(f"PREPARE explained AS {text}".encode())
    values = sql.SQL(", ").join(sql.Literal(params[name]) for name in names)
    asked = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained({})").format(values)
    with connection.transaction(force_rollback=True):
        row = connection.execute(asked).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan
