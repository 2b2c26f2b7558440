"""What the bodies of requests have in common: they are bounded, and know their fields."""

from datetime import timedelta
from typing import Annotated

from forge_schema.model.fields import LARGEST, NUMERIC, Count, KnownFields
from pydantic import BaseModel, Field

DECADE_S = 315_360_000
Limit = Count | None
LastsS = (
    Annotated[int, Field(ge=1, le=DECADE_S, description="seconds; none is for ever"), NUMERIC]
    | None
)
# A path and a query hold nothing but text, so that theirs are not as strict.
IdInPath = Annotated[int, Field(ge=1, le=LARGEST)]


class Body(KnownFields, BaseModel):
    """The base of bodies and queries: a field that is not known is refused."""


def lasting(seconds: int | None) -> timedelta | None:
    """Return a duration as the database wants it."""
    return None if seconds is None else timedelta(seconds=seconds)
