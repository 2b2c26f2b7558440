"""Base classes of models, and field types that accept only what Postgres can store."""

import json
import re
from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, datetime
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
)

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import (
    CoreSchema,
    ValidatorFunctionWrapHandler,
    no_info_wrap_validator_function,
)

from forge_schema.model.quantities import counted, size_text
from forge_schema.model.reading import INTEGER, LARGEST
from forge_schema.model.states import StateWord, counts_in_words, in_words

NAME_LENGTH = 200
# Control characters, and those that are not seen or turn a line around, as far as a schema says it.
UNSEEN = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb"
)
# Not seen either, but names of some scripts need them: Hindi's both, Persian's the first.
NON_JOINER, JOINER = "\u200c", "\u200d"
VIRAMA = 9
NAME = rf"(?!\.\.?$)[^\s{UNSEEN}]([^{UNSEEN}]*[^\s{UNSEEN}])?"
OF_NAMES = (
    f"use up to {counted(NAME_LENGTH, 'visible character')}, without spaces at the ends, and not"
    " only . or .."
)
# The limit of Postgres's index on an attempt's artifacts.
PATH_BYTES = 2000
DOCUMENT_BYTES = 256 << 10
DOCUMENT_DEPTH = 64
# Of one job.
MOST_TAGS = 50
# What a query needs quotes for, or takes for something else, is in no tag. Other scripts are.
TAG = r"[^\s,:\"\\*?\x00-\x1f\x7f-\x9f-][^\s,:\"\\*?\x00-\x1f\x7f-\x9f]{0,63}"
OF_TAGS = "use up to 64 characters without spaces, , : * ? or quotes, and no dash first"
# An escape in JSON; group 1 is one of a NUL, or of half a surrogate pair.
ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
    rb"|u(0000|[dD][89a-fA-F][\da-fA-F]{2})|.)",
    re.DOTALL,
)


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL character cannot be stored")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("half a surrogate pair cannot be stored") from error
    return text


def storable(text: bytes) -> bytes:
    """Return JSON with a replacement character for each one that Postgres refuses in text."""
    return ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)


def _numeric(value: object) -> object:
    # Not `strict`: in JSON, 5.0 is an integer.
    if isinstance(value, bool | str):
        raise ValueError("Input should be a number")  # noqa: TRY004 - pydantic expects a ValueError
    return value


def _not_a_number(value: object) -> object:
    # Pydantic would read a number as seconds since 1970; it is usually a mistake.
    if not isinstance(value, datetime) and not (isinstance(value, str) and "-" in value[1:]):
        raise ValueError("write it as 2026-11-21T09:30:00Z")
    return value


def _in_the_calendar(moment: datetime) -> datetime:
    # In UTC, it could have a year that Python cannot read back.
    if moment.year in {MINYEAR, MAXYEAR}:
        raise ValueError("a time must be within the years 2 to 9998")
    return moment


def _short_path(path: str) -> str:
    if len(path.encode()) > PATH_BYTES:
        raise ValueError(f"a path may have at most {counted(PATH_BYTES, 'byte')}")
    return path


def _below(path: str) -> str:
    # It becomes a path on the machine of whoever downloads the file.
    if path.startswith("/") or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise ValueError("a path must be relative, and stay in its folder")
    return path


def _stored_document(values: dict[str, Any]) -> dict[str, Any]:
    try:
        document = json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError("it has values that JSON cannot represent") from error
    if (
        storable(document) != document
        or len(document) > DOCUMENT_BYTES
        or _depth(values) > DOCUMENT_DEPTH
    ):
        raise ValueError(
            f"it may have at most {size_text(DOCUMENT_BYTES)} and"
            f" {counted(DOCUMENT_DEPTH, 'level')}, and no NUL character"
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


def _name_of_input(text: str) -> str:
    if not re.fullmatch(INPUT_NAME, text):
        raise ValueError(
            f"{text!r} cannot be a name: use up to 96 letters (A to Z, a to z), digits, dots,"
            " dashes and underscores, not beginning with a dot or dash"
        )
    return text


def is_name(text: str) -> bool:
    """Tell whether somebody who reads a name sees all of it, in one line."""
    if not re.fullmatch(NAME, text):
        return False
    return text.isprintable() or _without_joiners(text).isprintable()


def _without_joiners(text: str) -> str:
    """Return a text without the joiners that are part of its spelling; those at an end are not."""
    inner = zip(text, text[1:], text[2:], strict=False)
    kept = (sign for before, sign, after in inner if not _is_spelled(before, sign, after))
    return text[:1] + "".join(kept) + text[1:][-1:]


def _is_spelled(before: str, sign: str, after: str) -> bool:
    # Few names have one, and no command should load the tables for the others.
    from unicodedata import bidirectional, combining  # noqa: PLC0415 - as above

    if sign not in {NON_JOINER, JOINER} or not (before + after).isprintable():
        return False
    if VIRAMA in {combining(before), combining(after)}:
        return True
    return sign == NON_JOINER and bidirectional(before) == bidirectional(after) == "AL"


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text!r} cannot be a name: {OF_NAMES}")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Word = Annotated[Text, Field(min_length=1, max_length=NAME_LENGTH)]
ShownName = Annotated[
    Word, Field(json_schema_extra={"pattern": f"^{NAME}$"}), AfterValidator(_name)
]
# The name of a registered input, which no source of one can be.
INPUT_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
InputName = Annotated[
    Text, Field(json_schema_extra={"pattern": f"^{INPUT_NAME}$"}), AfterValidator(_name_of_input)
]
Note = Annotated[Text, Field(max_length=200)]
Key = Annotated[Text, Field(min_length=1, max_length=900)]
Path = Annotated[Text, Field(min_length=1), AfterValidator(_short_path)]
PathBelow = Annotated[Path, AfterValidator(_below)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# JSON distinguishes booleans, numbers and strings, so none is converted to another.
Flag = Annotated[bool, Field(strict=True)]
NUMERIC = BeforeValidator(_numeric)
# A number that JSON does not have, as text.
NotFinite: TypeAlias = Literal["NaN", "Infinity", "-Infinity"]
NOT_FINITE = get_args(NotFinite)
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Id = Annotated[int, Field(ge=1, le=LARGEST), NUMERIC]
Count = Annotated[int, Field(ge=0, le=INTEGER), NUMERIC]
Size = Annotated[int, Field(ge=0, le=LARGEST), NUMERIC]
Moment = Annotated[AwareDatetime, BeforeValidator(_not_a_number), AfterValidator(_in_the_calendar)]
Amount = Annotated[Number, Field(ge=0, le=1e15)]
# Not a dict of Any: values that only Python has are not allowed.
Document = Annotated[dict[str, JsonValue], AfterValidator(_stored_document)]


W = TypeVar("W", bound=StrEnum)


class Record(BaseModel):
    """A record sent from one side to another. Readers accept older and newer ones too.

    Fields left out of its `repr` are for programs: commands do not print them.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        json_schema_serialization_defaults_required=True,
        # A command reads a few kinds of them, and building one takes milliseconds.
        defer_build=True,
    )


class Answer(Record):
    """An answer whose fields have what a verb returns: one value, or several by name."""

    @classmethod
    def of(cls, value: Any) -> Self:  # noqa: ANN401 - whatever the verb returns
        """Make the answer."""
        names = list(cls.model_fields)
        return cls.model_validate(value if len(names) > 1 else {names[0]: value})

    def value(self) -> Any:  # noqa: ANN401 - as above
        """Return what the verb returned."""
        fields = dict(self)
        return fields if len(fields) > 1 else next(iter(fields.values()))


class Problem(Record):
    """The body of every error response."""

    code: str
    message: str
    hint: str = ""
    request_id: str = ""


class _OrNewer:
    """An enum that accepts unknown values, so that a newer server does not break a client."""

    def __get_pydantic_core_schema__(
        self, words: type[StrEnum], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def member(value: object, known: ValidatorFunctionWrapHandler) -> object:
            try:
                return known(value)
            except ValidationError:
                if not isinstance(value, str):
                    raise
                return _newer(words, value)

        return no_info_wrap_validator_function(member, handler(words))


def _newer(words: type[W], text: str) -> W:
    word = str.__new__(words, text)
    word._name_ = word._value_ = text
    return word


Open = Annotated[W, _OrNewer()]
"""A value of an open enumeration: its schema lists the known ones, others are accepted too."""


def _shown(value: object) -> object:
    """Put the queue's own states into words; the rest is for pydantic to refuse."""
    if isinstance(value, Mapping):
        return counts_in_words(value)
    return in_words(value) if isinstance(value, str) else value


_AS_SHOWN = BeforeValidator(_shown)
KnownState = Annotated[StateWord, _AS_SHOWN]
"""The state of a job as it is asked for; the queue's own states are read as well."""
ShownState = Annotated[Open[StateWord], _AS_SHOWN]
"""The state of a job as it is shown, and whatever a newer server may say."""
ShownCounts = Annotated[dict[Open[StateWord], int], _AS_SHOWN]
"""How many jobs are in each state."""


NAMED = 5
LONGEST_NAME = 100


def empty(kind: type[list[Any]] | type[dict[str, Any]]) -> Any:  # noqa: ANN401 - of any field
    """Return an empty default for a field of a model of which many are made.

    Of `= []`, pydantic makes a deep copy for each, which takes ten times as long.
    """
    return Field(default_factory=kind, json_schema_extra={"default": kind()})


class KnownFields(BaseModel):
    """Rejects unknown fields and suggests a known one with a similar name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    if not TYPE_CHECKING:  # pydantic hides its own from type checkers too

        def __eq__(self, other: object) -> bool:
            # Pydantic's looks for what these models cannot have, and a sweep compares many.
            return type(self) is type(other) and vars(self) == vars(other)

        __hash__ = BaseModel.__hash__

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_fields(cls, value: Any) -> Any:  # noqa: ANN401 - any input
        return _known(cls.__name__, cls.model_fields, value)


class MessagePart:
    """A frozen dataclass in a worker's message, checked only when it is parsed as part of one.

    Like the messages themselves, it may have fields that only a newer version knows.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="ignore", revalidate_instances="always")


def _known(model: str, fields: Mapping[str, Any], value: Any) -> Any:  # noqa: ANN401 - any input
    # Pydantic creates an error for each: a body full of them would take seconds.
    if isinstance(value, Mapping) and not value.keys() <= fields.keys():
        raise ValidationError.from_exception_data(model, _faults(fields, value))
    return value


def _faults(fields: Mapping[str, Any], given: Mapping[Any, Any]) -> list[InitErrorDetails]:
    unknown = (name for name in given if name not in fields)
    return [
        InitErrorDetails(
            type=_fault(str(name)[:LONGEST_NAME], fields), loc=(str(name),), input=None
        )
        for name in islice(unknown, NAMED)
    ]


# What others call a field of ours.
WORDS = {"type": "kind"}


def _of_other_words(name: str, fields: Mapping[str, Any]) -> list[str]:
    """Return the field that a longer name ends with: `labels` of `worker_labels`."""
    end = name.rpartition("_")[2]
    return [word for word in (WORDS.get(end, end), end) if word in fields]


def _fault(name: str, fields: Mapping[str, Any]) -> PydanticCustomError:
    near = [*get_close_matches(name, fields, n=1), *_of_other_words(name, fields)]
    hint = f"; did you mean {near[0]}?" if near else ""
    return PydanticCustomError("extra_forbidden", "unknown field{hint}", {"hint": hint})
