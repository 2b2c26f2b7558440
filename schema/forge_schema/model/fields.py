"""The kinds of fields that may come from outside: what Postgres can hold, and no more."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, JsonValue

INTEGER = 2**31 - 1
# What every reader of JSON takes as it is; no id ever comes near it.
LARGEST = 2**53 - 1
# What Postgres's index over the artifacts of an attempt can hold.
PATH_BYTES = 2000
DOCUMENT_BYTES = 256 << 10
DOCUMENT_DEPTH = 64


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL character cannot be stored")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("half a surrogate pair cannot be stored") from error
    return text


def _numeric(said: object) -> object:
    # Not `strict`: to JSON, 5.0 is an integer.
    if isinstance(said, bool | str):
        raise ValueError("Input should be a number")  # noqa: TRY004 - what pydantic takes
    return said


def _not_a_number(said: str) -> str:
    # Which would be seconds since 1970, and is more often a mistake.
    if "-" not in said[1:]:
        raise ValueError("write it as 2026-11-21T09:30:00Z")
    return said


def _short_path(path: str) -> str:
    if len(path.encode()) > PATH_BYTES:
        raise ValueError(f"a path may have {PATH_BYTES} bytes")
    return path


def _stored_document(values: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, RecursionError) as error:
        raise ValueError("it has what JSON cannot hold") from error
    if "\\u0000" in text or size > DOCUMENT_BYTES or _depth(values) > DOCUMENT_DEPTH:
        raise ValueError(
            f"it may have {DOCUMENT_BYTES} bytes, {DOCUMENT_DEPTH} levels and no NUL character"
        )
    return values


def _depth(values: object) -> int:
    depth, level = 0, [values]
    while level and depth <= DOCUMENT_DEPTH:
        depth += 1
        level = [inner for outer in level for inner in _within(outer)]
    return depth


def _within(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


Text = Annotated[str, AfterValidator(_storable)]
Word = Annotated[Text, Field(min_length=1, max_length=200)]
Note = Annotated[Text, Field(max_length=200)]
Key = Annotated[Text, Field(min_length=1, max_length=900)]
Path = Annotated[Text, Field(min_length=1), AfterValidator(_short_path)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# In JSON a flag, a number and a text are different things, and none passes for another.
Flag = Annotated[bool, Field(strict=True)]
NUMERIC = BeforeValidator(_numeric)
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Id = Annotated[int, Field(ge=1, le=LARGEST), NUMERIC]
Count = Annotated[int, Field(ge=0, le=INTEGER), NUMERIC]
Size = Annotated[int, Field(ge=0, le=LARGEST), NUMERIC]
Moment = Annotated[AwareDatetime, BeforeValidator(_not_a_number)]
Amount = Annotated[Number, Field(ge=0, le=1e15)]
# Not a dict of Any: what Python alone can hold has no place here.
Document = Annotated[dict[str, JsonValue], AfterValidator(_stored_document)]
