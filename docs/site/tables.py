"""The tables and the reporting views."""

import inspect
from collections.abc import Iterator

from forge_schema.database.tables import metadata
from forge_schema.read.report_definitions import REPORTS
from sqlalchemy import Column
from sqlalchemy.dialects import postgresql
from sqlmodel import SQLModel
from tabular import cell, table

HEAD = """\
# Tables and views

Generated from the code. The views are made for reading: [Reports](../reporting.md) explains each
of their columns. The tables may change with any version. Write to neither: the rules of the queue
are in its statements.
"""
DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


def page() -> str:
    """Return the page about tables and views."""
    return "\n".join([HEAD, "## Views\n", _views(), "## Tables\n", *_tables()])


def _views() -> str:
    rows = [(f"`{name}`", cell(report.about)) for name, report in sorted(REPORTS.items())]
    return table(("view", "shows"), rows)


def _tables() -> Iterator[str]:
    about = {model.__tablename__: model.__doc__ for model in SQLModel.__subclasses__()}
    for name, made in sorted(metadata.tables.items()):
        yield f"### {name}\n"
        yield f"{inspect.cleandoc(about[name] or '')}\n"
        yield table(("column", "type", "null"), [_row(column) for column in made.columns])


def _row(column: Column[object]) -> tuple[str, str, str]:
    kind = column.type.compile(DIALECT)
    return f"`{column.name}`", f"`{kind.lower()}`", "yes" if column.nullable else ""
