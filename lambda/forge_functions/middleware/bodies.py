"""Base classes of request bodies: bounded, with known fields."""

import base64
from datetime import timedelta
from typing import Annotated

from forge_schema.model.fields import LARGEST, NUMERIC, Count, KnownFields
from pydantic import BaseModel, Field

DECADE_S = 315_360_000
Limit = Count | None
LastsS = (
    Annotated[int, Field(ge=1, le=DECADE_S, description="seconds; null means no expiry"), NUMERIC]
    | None
)
# 32 bytes: the last letter before the equals sign has four bits.
ED25519 = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"
PublicKey = (
    Annotated[
        str,
        Field(
            pattern=ED25519,
            description="an Ed25519 key in base64; every request must be signed with it",
        ),
    ]
    | None
)
# Paths and queries have only text, so theirs are less strict.
IdInPath = Annotated[int, Field(ge=1, le=LARGEST)]


class Body(KnownFields, BaseModel):
    """The base of bodies and queries, which rejects unknown fields."""


def public_key_of(text: str | None) -> bytes | None:
    """Convert a public key for the database."""
    return None if text is None else base64.b64decode(text)


def lasting(seconds: int | None) -> timedelta | None:
    """Convert a duration for the database."""
    return None if seconds is None else timedelta(seconds=seconds)
