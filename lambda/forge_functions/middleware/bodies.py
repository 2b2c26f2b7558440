"""Base classes of request bodies: bounded, with known fields."""

from datetime import timedelta
from typing import Annotated

from forge_schema.model.fields import LARGEST, NUMERIC, KnownFields
from pydantic import BaseModel, Field

DECADE_S = 315_360_000
LastsS = (
    Annotated[int, Field(ge=1, le=DECADE_S, description="seconds; null means no expiry"), NUMERIC]
    | None
)
# Paths have only text, so theirs is less strict.
IdInPath = Annotated[int, Field(ge=1, le=LARGEST)]


class Body(KnownFields, BaseModel):
    """The base of bodies and queries, which rejects unknown fields."""


def lasting(seconds: int | None) -> timedelta | None:
    """Convert a duration for the database."""
    return None if seconds is None else timedelta(seconds=seconds)
