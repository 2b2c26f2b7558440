"""Models and dataclasses that refuse unknown fields, a few by name however many came."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

NAMED = 5
LONGEST_NAME = 100


class KnownFields(BaseModel):
    """Refuses a field that it does not know, and says which known one has nearly the same name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_fields(cls, said: Any) -> Any:  # noqa: ANN401 - whatever came
        return _known(cls.__name__, cls.model_fields, said)


class KnownParts:
    """A frozen dataclass that is part of a request: built freely, checked inside a message."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", revalidate_instances="always")
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def __get_pydantic_core_schema__(
        cls,
        source: Any,  # noqa: ANN401 - pydantic's own
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        check = partial(_known, cls.__name__, cls.__dataclass_fields__)
        return no_info_before_validator_function(check, handler(source))


def _known(model: str, fields: Mapping[str, Any], said: Any) -> Any:  # noqa: ANN401 - whatever came
    # Pydantic makes an error of each: a body full of them would take seconds.
    if isinstance(said, Mapping) and not said.keys() <= fields.keys():
        raise ValidationError.from_exception_data(model, _faults(fields, said))
    return said


def _faults(fields: Mapping[str, Any], said: Mapping[Any, Any]) -> list[InitErrorDetails]:
    unknown = (name for name in said if name not in fields)
    return [
        InitErrorDetails(
            type=_fault(str(name)[:LONGEST_NAME], fields), loc=(str(name),), input=None
        )
        for name in islice(unknown, NAMED)
    ]


def _fault(name: str, fields: Mapping[str, Any]) -> PydanticCustomError:
    near = get_close_matches(name, fields, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return PydanticCustomError("extra_forbidden", "this field is not known{hint}", {"hint": hint})
