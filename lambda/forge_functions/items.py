"""The shape of answers with a list, or without content."""

from collections.abc import Callable
from typing import Annotated, Generic, Self, TypeVar

from fastapi import Request
from pydantic import BaseModel, Field

T = TypeVar("T")


class Items(BaseModel, Generic[T]):
    """A list, or one page of it."""

    items: list[T]
    next: Annotated[
        str | None,
        Field(description="path and query of the next page; null if this is the last one"),
    ] = None

    @classmethod
    def page(
        cls, items: list[T], request: Request, full: int, after: Callable[[T], dict[str, object]]
    ) -> Self:
        """Return a page. If it is full, the next one has the parameters `after` its last item."""
        if len(items) < full:
            return cls(items=items)
        return cls(items=items, next=next_page(request, after(items[-1])))


def next_page(request: Request, after: dict[str, object]) -> str:
    """Return the path and query of this page with other parameters."""
    url = request.url.include_query_params(**after)
    return f"{url.path}?{url.query}"


class Done(BaseModel):
    """Success without content."""
