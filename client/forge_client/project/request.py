"""A job request as written by people in forge.toml, options and the SDK."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from forge_schema.model.errors import plainly, shorter
from forge_schema.model.quantities import (
    MIB,
    PART,
    capacity,
    duration_text,
    seconds,
    size,
    size_text,
)
from forge_schema.model.spec import CODE, KEYS, Key, Option
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticCustomError

from forge_client.errors import ClientError, InvalidInput
from forge_client.project import FILE, IMAGE_WAYS, Requested, in_unit, written

_Name = Annotated[str, Field(pattern=r"^\s*[0-9]+(:[0-9]+\.[0-9]+)?\s*$")]
CheckpointName = Annotated[
    dict[str, Any], BeforeValidator(written.checkpoint, json_schema_input_type=int | _Name)
]


def _jobs(value: object) -> object:
    """Return ids given as a number, as `7,8`, as a `Job`, or in a list, where each may be any."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [job_id for job in value for job_id in _some(job)]
    return _some(value)


def _some(value: object) -> list[object]:
    return list(value.split(",")) if isinstance(value, str) else [getattr(value, "id", value)]


_Ids = Annotated[str, Field(pattern=r"^\s*[0-9]+\s*(,\s*[0-9]+\s*)*$")]
Jobs = Annotated[
    list[int] | None, BeforeValidator(_jobs, json_schema_input_type=int | _Ids | list[int | _Ids])
]


Names = Annotated[
    list[str] | None, BeforeValidator(written.names, json_schema_input_type=str | list[str])
]


# A range begins with 2; which of its numbers is the greater, a pattern cannot tell.
_COUNT, _SEVERAL = "0*[1-9][0-9]{0,3}", "0*([2-9]|[1-9][0-9]{1,3})"
_Range = Annotated[str, Field(pattern=rf"^\s*({_COUNT}|{_SEVERAL}\s*\.\.\s*{_SEVERAL})\s*$")]
_Nodes = Annotated[int, Field(ge=1)]
Nodes = Annotated[
    tuple[int, int | None] | None,
    BeforeValidator(written.machines, json_schema_input_type=_Nodes | _Range),
]


# `command_words` makes a command of it, and `checkpoint_folder` takes off what the queue does not.
_Line = Annotated[str, Field(pattern=r"\S")]
_Words = Annotated[list[str], Field(min_length=1)]
_Below = Annotated[str, Field(pattern=r"^(\./)?((?!\.\.?/)[^/\\]+/)*(?!\.\.?/*$)[^/\\]+/*$")]


def words(command: Sequence[str] | str) -> list[str]:
    """Return the words of a command; a string is split as in a shell.

    Raises:
        ClientError: it is no command, or its quotation marks do not match.
    """
    return Request().changed({"command": command}).command or []


def several(given: Iterable[str] | str) -> list[str]:
    """Return the texts of a list; a single text, which would be its letters, is a list of one."""
    return [given] if isinstance(given, str) else list(given)


_DurationText = Annotated[str, Field(pattern=rf"^\s*(\d+(\.\d+)?|({PART.pattern}\s*)+)\s*$")]
_SizeText = Annotated[str, Field(pattern=r"^\s*\d+(\.\d+)?\s*[KkMmGgTt]?([Ii]?[Bb])?\s*$")]

Duration = Annotated[float, BeforeValidator(seconds, json_schema_input_type=float | _DurationText)]
"""Seconds, from a number or from text such as `1h30m`."""

Capacity = Annotated[int, BeforeValidator(capacity, json_schema_input_type=_SizeText)]
"""Bytes of memory or disk, from text such as `512MiB`."""

Size = Annotated[int, BeforeValidator(size, json_schema_input_type=_SizeText)]
"""Bytes, from text such as `512MiB`."""

_Path = Annotated[str, Field(min_length=1)]
NUMBERS = {int, float}


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("write a number")  # noqa: TRY004 - pydantic passes on only this
    return value


def _as_written(key: Key) -> Any:  # noqa: ANN401 - any type
    """Return the type of a key's value as people write it, a number within the queue's bounds."""
    forms: dict[Any, Any] = {"_s": Duration, "_mb": Capacity, list: list[str], dict: dict[str, Any]}
    form = forms.get(key.unit or key.kind, key.kind)
    if form in NUMBERS:
        form = Annotated[form, BeforeValidator(_no_truth)]
    return Annotated[form, AfterValidator(partial(_within, key))] if key.kind in NUMBERS else form


def _within(key: Key, value: float) -> float:
    """Refuse what the queue would refuse, in the same words."""
    try:
        create_model("_Within", value=(key.hint, ...))(value=_in_unit(key, value))
    except ValidationError as error:
        first = error.errors()[0]
        said = _bounded(shorter(first["msg"]), key.unit)
        raise PydanticCustomError("bounds", "{message}", {"message": said}) from None
    return value


def _made(name: str, table: str, tables: Mapping[str, type[BaseModel]]) -> Any:  # noqa: ANN401 - mypy cannot read what is made
    """Return a model of the keys of a job, or of one of its tables, as people write them."""
    fields: dict[str, Any] = {
        key.name: (tables[key.name], tables[key.name].model_construct())
        if key.name in tables
        else (Annotated[_as_written(key) | None, key.option], None)
        for key in KEYS.values()
        if key.table == table
    }
    # What it is a part of, or the base of, is built.
    config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    return create_model(name, __config__=config, __module__=__name__, **fields)


TABLES: dict[str, type[BaseModel]] = {
    table: _made(table.capitalize(), table, {})
    for table in dict.fromkeys(key.table for key in KEYS.values() if key.table)
}
if TYPE_CHECKING:

    class _Plain(BaseModel):
        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401 - as above

else:
    _Plain = _made("_Plain", "", TABLES)


def _in_queues_form(given: BaseModel, table: str = "") -> dict[str, Any]:
    """Return those keys of a model that are given: times in seconds, sizes in MiB, rounded up."""
    return {
        KEYS[name].field: _in_unit(KEYS[name], value)
        for name in type(given).model_fields
        if name in KEYS and KEYS[name].table == table
        if (value := getattr(given, name)) is not None
    }


def _in_unit(key: Key, value: Any) -> Any:  # noqa: ANN401 - any type
    if isinstance(value, BaseModel):
        return _in_queues_form(value, key.name)
    return in_unit(value, key.unit, key.kind)


def _is_nothing(name: str, value: object) -> bool:
    """Tell whether a value changes nothing: none, or an empty one of a field that has several."""
    several = name not in KEYS or name in TABLES or KEYS[name].kind in {list, dict}
    return value is None or (several and value in ({}, [], ()))


class Request(Requested, _Plain):
    """A requested job; fields that are None take the queue's defaults.

    Below are only the keys of forge.toml that have a form of their own, and those that the queue
    does not know; all others are made from the fields of a job.
    """

    model_config = ConfigDict(defer_build=False)

    command: Annotated[
        list[str] | None,
        BeforeValidator(written.command_words, json_schema_input_type=_Line | _Words),
    ] = None
    nodes: Nodes = None
    labels: dict[str, str] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    inputs: dict[str, str] = Field(default_factory=dict)
    checkpoint_dir: Annotated[
        str | None, BeforeValidator(written.checkpoint_folder, json_schema_input_type=_Below)
    ] = None
    checkpoint: Annotated[
        list[str] | None,
        BeforeValidator(written.patterns, json_schema_input_type=_Below | list[_Below]),
    ] = None
    from_checkpoint: CheckpointName | None = None
    after: Jobs = None
    after_ok: Jobs = None
    after_any: Jobs = None
    requirements: Annotated[
        str | Literal[False] | None,
        PlainValidator(written.file_or_not, json_schema_input_type=_Path | Literal[False]),
        Option("File that lists what to install, found by itself; false installs nothing."),
    ] = None
    extras: Annotated[
        Names,
        Option(
            "Optional dependencies of the project to install too, such as train.",
            CODE,
            names="--extra",
        ),
    ] = None
    groups: Annotated[
        Names,
        Option(
            "Dependency groups of the project to install too, such as gpu.", CODE, names="--group"
        ),
    ] = None

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return the request with some fields changed.

        Labels, env, inputs, secrets, resources, tuning and stall are merged, not replaced.

        Args:
            changes: fields by name, also those in tables; None and empty values change nothing.

        Raises:
            ClientError: a field is unknown or invalid.
        """
        given = {name: value for name, value in changes.items() if not _is_nothing(name, value)}
        tables = {
            table: {name: given.pop(name) for name in model.model_fields if name in given}
            for table, model in TABLES.items()
        }
        try:
            other = Request.model_validate({**given, **tables})
        except ValidationError as error:
            raise refused(error.errors()[0]) from None
        # An image given here, in whichever way, replaces any other.
        ways = IMAGE_WAYS if IMAGE_WAYS & given.keys() else set()
        # Existing values are kept as they are: they have been validated.
        return self.model_copy(
            update={
                **{name: getattr(other, name) for name in {*given, *ways}},
                "labels": {**self.labels, **other.labels},
                "env": {**self.env, **other.env},
                "inputs": {**self.inputs, **other.inputs},
                "secrets": [*dict.fromkeys([*(self.secrets or []), *(other.secrets or [])])]
                or None,
                **{
                    table: getattr(self, table).model_copy(
                        update=getattr(other, table).model_dump(exclude_unset=True)
                    )
                    for table in TABLES
                },
            }
        )

    def given(self) -> dict[str, Any]:
        """Return the given fields by the queue's names; `nodes` is the least and the most."""
        return _in_queues_form(self)


KNOWN = {*Request.model_fields, *(key for table in TABLES.values() for key in table.model_fields)}
# The queue's names of times and sizes end with the unit, and it has two for a range of machines.
WITH_UNIT = re.compile(r"\b([a-z_]+)_(s|mb)\b(: must be at (?:most|least) [\d.]+)?")
BOUND = re.compile(r"(must be at (?:most|least) )(\d+(?:\.\d+)?)")


def nothing_to_keep(folder: object) -> ClientError:
    """Return the error for a template without a field."""
    return InvalidInput(
        f"there is nothing to save: {folder or 'no folder'} has no {FILE}, and there is no command",
        hint=f"write the job into {FILE}, or give its command",
    )


def refused(first: Mapping[str, Any], *, of_job: bool = True) -> ClientError:
    """Return an error that names the wrong field and its fault, from pydantic's first error.

    Those of a job are known.
    """
    # An option or a key of forge.toml, whichever table it is in.
    named = (part for part in first["loc"] if not isinstance(part, int))
    field = ".".join(map(str, named)).removeprefix("resources.")
    if first["type"] == "extra_forbidden":
        return _unknown(field) if of_job else InvalidInput(f"there is no {field!r}")
    return ClientError(in_own_words(_fault(field, first)), code="spec_invalid")


DRY_RUN = 'write forge_client.dry_run(client.submit, ".", "python train.py")'


def check_fields(names: Iterable[str]) -> None:
    """Check that a job has fields of these names; `ClientError` if it has no such field."""
    for name in names:
        if name not in KNOWN:
            raise _unknown(name)


def invalid(error: ValidationError, known: Iterable[str] = ()) -> ClientError:
    """Return an error about an argument of a call that is no field of a job."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        hint = _meant(field, known)
        return InvalidInput(f"there is no {field!r}", hint=hint)
    return InvalidInput(_fault(field, first))


def _unknown(field: str) -> ClientError:
    fault = f"a job has no field {field!r}"
    hint = DRY_RUN if field == "dry_run" else _meant(field, KNOWN)
    return ClientError(fault, hint=hint, code="spec_invalid")


def _meant(field: str, known: Iterable[str]) -> str:
    """Return which of the known fields may be meant, or all; nothing if none are known."""
    there = sorted(known)
    if near := get_close_matches(field, there, n=1):
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(there)}" if there else ""


def _fault(field: str, first: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, [field, plainly(first["msg"])]))


def in_own_words(text: str) -> str:
    """Return a message from the queue with keys as people write them, in shorter words."""
    text = shorter(text).replace("max_nodes:", "nodes:")
    return WITH_UNIT.sub(_with_its_unit, text)


def _with_its_unit(found: re.Match[str]) -> str:
    name, unit, bound = found.groups("")
    if name not in KNOWN:
        return found[0]
    return f"{name}{_bounded(bound, f'_{unit}')}"


def _bounded(text: str, unit: str) -> str:
    """Return a message with a bound in units that people write."""
    if unit == "_s":
        return BOUND.sub(lambda said: said[1] + duration_text(float(said[2])), text)
    if unit == "_mb":
        return BOUND.sub(lambda said: said[1] + size_text(float(said[2]) * MIB), text)
    return text
