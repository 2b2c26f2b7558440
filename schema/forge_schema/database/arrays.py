"""Arrays of many values as parameters, in Postgres's binary format.

psycopg dumps them value by value, which takes longer than the statement.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

# Dimensions, whether there are NULLs, the type of the values; then their number and first index.
HEAD = Struct("!iIIii")
LENGTH = Struct("!i").pack
TEXT, JSONB = 25, 3802
# The version of a document's format.
VERSION = b"\x01"


class TextArray(bytes):
    """A `text[]`."""

    __slots__ = ()


class JsonbArray(bytes):
    """A `jsonb[]`."""

    __slots__ = ()


def texts(values: Sequence[str]) -> TextArray:
    """Return texts as a parameter."""
    return TextArray(_array(TEXT, len(values), [value.encode() for value in values]))


def documents(values: Sequence[bytes]) -> JsonbArray:
    """Return documents in JSON as a parameter."""
    return JsonbArray(_array(JSONB, len(values), [VERSION + value for value in values]))


def register(context: AdaptContext) -> None:
    """Let a connection take such parameters."""
    context.adapters.register_dumper(TextArray, _TextArrays)
    context.adapters.register_dumper(JsonbArray, _JsonbArrays)


def _array(of: int, number: int, values: Iterable[bytes]) -> bytes:
    parts = [HEAD.pack(1, 0, of, number, 1)]
    for value in values:
        parts += LENGTH(len(value)), value
    return b"".join(parts)


class _TextArrays(Dumper):
    format = Format.BINARY
    oid = 1009

    def dump(self, obj: bytes) -> bytes:
        return obj


class _JsonbArrays(_TextArrays):
    oid = 3807
