"""The base class of request bodies: bounded, with known fields."""

from typing import Annotated

from forge_schema.model.fields import KnownFields
from forge_schema.model.reading import LARGEST
from pydantic import BaseModel, Field

# Paths have only text, so theirs is less strict.
IdInPath = Annotated[int, Field(ge=1, le=LARGEST)]


class RequestBody(KnownFields, BaseModel):
    """The base of bodies and queries, which rejects unknown fields."""
