"""What requests may hold: bounded, and nothing that a row cannot."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

LARGEST = 2**63 - 1
LARGEST_INTEGER = 2**31 - 1
DECADE_S = 315_360_000


def storable(text: str) -> str:
    """Return a text that a row can hold.

    Raises:
        ValueError: it has a NUL, or half of a character beyond the first 65,536.
    """
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("a NUL character or an unpaired surrogate cannot be stored")
    return text


Id = Annotated[int, Field(ge=1, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(storable)]
Limit = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)] | None
LastsS = Annotated[int, Field(ge=1, le=DECADE_S, description="seconds; none is for ever")] | None


class Body(BaseModel):
    """The base of every body: it knows its fields, and refuses others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, said: object) -> object:
        for text in _texts(said):
            storable(text)
        return said


def lasting(seconds: int | None) -> timedelta | None:
    """Return a duration as the database wants it."""
    return None if seconds is None else timedelta(seconds=seconds)


def _texts(said: object) -> Iterator[str]:
    # No recursion: what JSON nests may be deeper than the stack.
    left = [said]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case dict() as fields:
                left += [*fields, *fields.values()]
            case list() as values:
                left += values
