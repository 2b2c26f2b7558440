"""The base of what is told, and words that a newer version may add to."""

from enum import StrEnum
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core.core_schema import (
    CoreSchema,
    ValidatorFunctionWrapHandler,
    no_info_wrap_validator_function,
)

W = TypeVar("W", bound=StrEnum)


class Record(BaseModel):
    """What one side tells another. It has every field; a reader takes an older or newer one too.

    A field that its `repr` leaves out is for programs: commands do not print it.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", json_schema_serialization_defaults_required=True
    )


class _OrNewer:
    """Reads an unknown word as one more member, so that a newer server does not break a client."""

    def __get_pydantic_core_schema__(
        self, words: type[StrEnum], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def member(said: object, known: ValidatorFunctionWrapHandler) -> object:
            try:
                return known(said)
            except ValidationError:
                if not isinstance(said, str):
                    raise
                return _newer(words, said)

        return no_info_wrap_validator_function(member, handler(words))


def _newer(words: type[W], said: str) -> W:
    word = str.__new__(words, said)
    word._name_ = word._value_ = said
    return word


Open = Annotated[W, _OrNewer()]
"""A word of an enumeration; the schema lists those known, and an unknown one is read as well."""
