"""The shape of answers that are a list, or nothing."""

from typing import Generic, TypeVar

from forge_schema.database.pool import Row
from pydantic import BaseModel

T = TypeVar("T")
Rows = dict[str, list[Row]]
"""Items before they are checked against their model."""


class Items(BaseModel, Generic[T]):
    """A list."""

    items: list[T]


class Done(BaseModel):
    """It is done, and there is nothing to say."""
