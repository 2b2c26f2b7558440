"""What a field of a job says of itself: how people write it, and what it is for.

Options of commands, forge.toml with its schema, and the command that a page shows are made of this.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

RESOURCES = "Resources"
CODE = "Code and environment"
START = "When it starts"
FAILURES = "Failures and time limits"
CHECKPOINTS = "Checkpoints"
# The boxes of a command's help, in their order; options that are in none of them come first.
PANELS = ("", RESOURCES, CODE, START, FAILURES, CHECKPOINTS)
# The ends of the queue's names: people write `90s` and `2GiB` instead.
UNITS = ("_s", "_mb")


@dataclass(frozen=True, slots=True)
class Option:
    """The metadata of a field that people write.

    Args:
        help: a sentence for `--help`, and beside the key in forge.toml.
        panel: the box of the help that it is in.
        names: the option's names; by default as the key, with dashes.
        metavar: what stands for its value in the help.
        variable: the environment variable that it is read from.
        more: a sentence that holds on the command line only.
        typed: whether it is an option of every command that submits jobs.
        changes: whether it, or the fields of its table, can be changed while the job waits.
    """

    help: str
    panel: str = ""
    names: str = ""
    metavar: str | None = None
    variable: str | None = None
    more: str = ""
    typed: bool = True
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A field of a job as people write it: its key in forge.toml, or in one of its tables.

    `kind` is the type of its value in the queue: str, int, float, bool, list, dict, or a model.
    The `words` are all of its values, if there are few; the queue's `hint` has their bounds, and
    without one it takes the `default`. It `changes` if it can be changed while the job waits.
    """

    name: str
    field: str
    table: str
    option: Option
    kind: type
    words: tuple[str, ...]
    hint: Any
    changes: bool
    default: Any = None

    @property
    def unit(self) -> str:
        """The unit that ends the queue's name, such as `_s`; or empty."""
        return self.field.removeprefix(self.name)

    @property
    def names(self) -> list[str]:
        """The names of its option."""
        return self.option.names.split() or [f"--{self.name.replace('_', '-')}"]


def option_of(field: FieldInfo) -> Option | None:
    """Return what a model's field says of itself, None if people do not write it."""
    return next((item for item in field.metadata if isinstance(item, Option)), None)


def keys_of(model: type[BaseModel], table: str = "", *, changes: bool = False) -> Iterator[Key]:
    """Yield the keys of a model, those of each table after the table's own."""
    for name, field in model.model_fields.items():
        if option := option_of(field):
            hint = _without_none(field.annotation)
            key = _key(name, table, option, hint, field.rebuild_annotation())
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield replace(key, changes=key.changes or changes, default=default)
            if isinstance(hint, type) and issubclass(hint, BaseModel):
                yield from keys_of(hint, name, changes=key.changes)


def _key(name: str, table: str, option: Option, hint: Any, whole: Any) -> Key:  # noqa: ANN401 - any types
    words = _words(_bare(hint))
    return Key(
        name=name.removesuffix(next(filter(name.endswith, UNITS), "")),
        field=name,
        table=table,
        option=option,
        kind=str if words else _bare(get_origin(_bare(hint)) or hint),
        words=words,
        hint=whole,
        changes=option.changes,
    )


def _without_none(hint: Any) -> Any:  # noqa: ANN401 - any type
    parts = [part for part in get_args(hint) if part is not NoneType]
    return parts[0] if NoneType in get_args(hint) else hint


def _bare(hint: Any) -> Any:  # noqa: ANN401 - any type
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _words(hint: Any) -> tuple[str, ...]:  # noqa: ANN401 - any type
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return tuple(member.value for member in hint)
    return ()
