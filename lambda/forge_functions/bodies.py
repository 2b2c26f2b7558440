"""What the bodies of requests have in common: they are bounded, and know their fields."""

from datetime import timedelta
from typing import Annotated

from forge_schema.wire_fields import INTEGER
from pydantic import BaseModel, ConfigDict, Field

DECADE_S = 315_360_000
Limit = Annotated[int, Field(ge=0, le=INTEGER)] | None
LastsS = Annotated[int, Field(ge=1, le=DECADE_S, description="seconds; none is for ever")] | None


class Body(BaseModel):
    """The base of bodies and queries: a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def lasting(seconds: int | None) -> timedelta | None:
    """Return a duration as the database wants it."""
    return None if seconds is None else timedelta(seconds=seconds)
