"""Models that refuse unknown fields, a few of them by name however many came."""

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

NAMED = 5
LONGEST_NAME = 100


class KnownFields(BaseModel):
    """Refuses a field that it does not know, and says which known one has nearly the same name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_fields(cls, said: Any) -> Any:  # noqa: ANN401 - whatever came
        # Pydantic makes an error of each: a body full of them would take seconds.
        if isinstance(said, Mapping) and not said.keys() <= cls.model_fields.keys():
            raise ValidationError.from_exception_data(cls.__name__, _faults(cls, said))
        return said


def _faults(model: type[BaseModel], said: Mapping[Any, Any]) -> list[InitErrorDetails]:
    unknown = (name for name in said if name not in model.model_fields)
    return [
        InitErrorDetails(type=_fault(str(name)[:LONGEST_NAME], model), loc=(str(name),), input=None)
        for name in islice(unknown, NAMED)
    ]


def _fault(name: str, model: type[BaseModel]) -> PydanticCustomError:
    near = get_close_matches(name, model.model_fields, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return PydanticCustomError("extra_forbidden", "this field is not known{hint}", {"hint": hint})
