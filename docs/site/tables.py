"""The tables."""

import inspect
from collections.abc import Iterator

from forge_schema.database.tables import metadata
from sqlalchemy import Column
from sqlalchemy.dialects import postgresql
from sqlmodel import SQLModel
from tabular import table

HEAD = """\
# Tables

Generated from the code. The tables may change with any version: read the [views](views.md), which
are made for it. Write to neither: the rules of the queue are in its statements.
"""
DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


def page() -> str:
    """Return the page about the tables."""
    return "\n".join([HEAD, *_tables()])


def _tables() -> Iterator[str]:
    about = {model.__tablename__: model.__doc__ for model in SQLModel.__subclasses__()}
    for name, made in sorted(metadata.tables.items()):
        yield f"## {name}\n"
        yield f"{inspect.cleandoc(about[name] or '')}\n"
        yield table(("column", "type", "null"), [_row(column) for column in made.columns])


def _row(column: Column[object]) -> tuple[str, str, str]:
    kind = column.type.compile(DIALECT)
    return f"`{column.name}`", f"`{kind.lower()}`", "yes" if column.nullable else ""
