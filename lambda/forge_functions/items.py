"""The shape of answers with a list, or without content."""

from typing import Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T")


class Items(BaseModel, Generic[T]):
    """A list."""

    items: list[T]


class Done(BaseModel):
    """Success without content."""
