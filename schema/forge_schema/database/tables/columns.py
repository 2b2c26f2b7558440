"""The column types that the tables share, so that each model reads as a list of nouns."""

import re
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Identity,
    Integer,
    SmallInteger,
    Text,
    TextClause,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, ENUM, INTERVAL, JSONB, TIMESTAMP, UUID
from sqlalchemy.types import TypeEngine
from sqlmodel import Field


def _column(kind: TypeEngine[Any], *, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - SQLModel's Field is untyped by design
    server_default = None if default is None else text(default)
    column: Column[Any] = Column(kind, nullable=null, server_default=server_default)
    return Field(default=None, sa_column=column)


def _key(kind: TypeEngine[Any], *args: Any) -> Any:  # noqa: ANN401 - as above
    return Field(default=None, sa_column=Column(kind, *args, primary_key=True, autoincrement=False))


def identity(*, big: bool = True) -> Any:  # noqa: ANN401 - as above
    """A primary key that the database numbers."""
    kind = BigInteger() if big else Integer()
    return Field(default=None, sa_column=Column(kind, Identity(), primary_key=True))


def key_big() -> Any:  # noqa: ANN401 - as above
    return _key(BigInteger())


def key_integer() -> Any:  # noqa: ANN401 - as above
    return _key(Integer())


def key_small() -> Any:  # noqa: ANN401 - as above
    return _key(SmallInteger())


def key_string() -> Any:  # noqa: ANN401 - as above
    return _key(Text())


def key_moment() -> Any:  # noqa: ANN401 - as above
    return _key(TIMESTAMP(timezone=True))


def big(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(BigInteger(), null=null, default=default)


def integer(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(Integer(), null=null, default=default)


def small(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(SmallInteger(), null=null, default=default)


def number(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(Double(), null=null, default=default)


def flag(*, default: str = "false") -> Any:  # noqa: ANN401 - as above
    return _column(Boolean(), default=default)


def maybe() -> Any:  # noqa: ANN401 - as above
    """True, false, or not known yet."""
    return _column(Boolean(), null=True)


def string(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(Text(), null=null, default=default)


def strings(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(ARRAY(Text()), null=null, default=default)


def integers(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(ARRAY(Integer()), null=null, default=default)


def bigs(*, null: bool = False) -> Any:  # noqa: ANN401 - as above
    return _column(ARRAY(BigInteger()), null=null)


def uuid(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(UUID(as_uuid=True), null=null, default=default)


def octets(*, null: bool = False) -> Any:  # noqa: ANN401 - as above
    return _column(BYTEA(), null=null)


def document(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    return _column(JSONB(), null=null, default=default)


def moment(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    """A point in time by the database's clock."""
    return _column(TIMESTAMP(timezone=True), null=null, default=default)


def day(column: str) -> TextClause:
    """The UTC day of a time, in the form that the indexes use."""
    return text(f"(({column} AT TIME ZONE 'UTC')::date)")


def span(*, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    """A length of time."""
    return _column(INTERVAL(), null=null, default=default)


def word(words: type[StrEnum], *, null: bool = False, default: str | None = None) -> Any:  # noqa: ANN401 - as above
    """A value of an enum, stored as a Postgres enum type.

    The type is checked once, when a value is created; a CHECK would run at every write of the row.
    """
    kind = ENUM(*(w.value for w in words), name=type_name(words), create_type=False)
    return _column(kind, null=null, default=default)


def type_name(words: type[StrEnum]) -> str:
    """Return the name of an enum's type in the database: `WorkerKind` is `worker_kind`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", words.__name__).lower()
