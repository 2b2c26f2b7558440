"""The shape of answers with a list, or without content."""

from typing import Generic, TypeVar

from forge_schema.database.pool import Row
from pydantic import BaseModel

T = TypeVar("T")
Rows = dict[str, list[Row]]
"""Items before they are validated."""


class Items(BaseModel, Generic[T]):
    """A list."""

    items: list[T]


class Done(BaseModel):
    """Success without content."""
