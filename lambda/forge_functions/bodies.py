"""The shapes of requests, and of answers with a list or without content."""

from collections.abc import Callable
from typing import Annotated, Generic, Self, TypeVar

from fastapi import Request
from forge_schema.model.fields import KnownFields
from forge_schema.model.reading import LARGEST
from pydantic import BaseModel, Field
from pydantic_core import to_json

# ASGI's extension for a file that the server sends by itself.
ZERO_COPY = "http.response.zerocopysend"
# Ours, for a body that a connection reads by itself: a `ReceivedBody`.
RECEIVED = "forge.received_body"
T = TypeVar("T")
# Paths have only text, so theirs is less strict.
IdInPath = Annotated[int, Field(ge=1, le=LARGEST)]


class RequestBody(KnownFields, BaseModel):
    """The base of bodies and queries, which rejects unknown fields."""


class Items(BaseModel, Generic[T]):
    """A list, or one page of it."""

    items: list[T]
    next: Annotated[
        str | None,
        Field(description="path and query of the next page; null if this is the last one"),
    ] = None

    @classmethod
    def page(
        cls,
        items: list[T],
        request: Request,
        full: int,
        after: Callable[[T], dict[str, object]],
        *,
        most_bytes: int | None = None,
    ) -> Self:
        """Return a page. If it is full, the next one has the parameters `after` its last item.

        Whoever read the items may have stopped at `most_bytes`; as JSON they may have less.
        """
        size = 0 if most_bytes is None else sum(len(to_json(item)) for item in items)
        if len(items) < full and size <= (most_bytes or 0) // 2:
            return cls(items=items)
        return cls(items=items, next=next_page(request, after(items[-1])))


def next_page(request: Request, after: dict[str, object]) -> str:
    """Return the path and query of this page with other parameters."""
    url = request.url.include_query_params(**after)
    return f"{url.path}?{url.query}"


class Done(BaseModel):
    """Success without content."""
