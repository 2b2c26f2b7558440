"""A project's folder and forge.toml, and the jobs that they describe."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from forge_schema.model.quantities import MIB, capacity, seconds

from forge_client.errors import ClientError

FILE = "forge.toml"
IMAGE_WAYS = {"image", "image_tar", "dockerfile"}
UNITS: dict[str, Callable[[Any], float]] = {"_s": seconds, "_mb": capacity}
BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


class Requested:
    """What is asked of a job, however it was read."""

    if TYPE_CHECKING:
        command: list[str] | None

        def given(self) -> dict[str, Any]: ...

    def whole(self) -> Self:
        """Return it with everything checked that needs no queue."""
        return self

    def fields(self) -> dict[str, Any]:
        """Return the given fields in the queue's form."""
        given = self.given()
        nodes = zip(("nodes", "max_nodes"), given.pop("nodes", ()), strict=False)
        optional = ("inputs", "requirements", "tuning", "stall")
        unneeded = {name for name in optional if not given.get(name)}
        return {
            **{name: value for name, value in given.items() if name not in unneeded},
            **{name: value for name, value in nodes if value is not None},
        }

    def spec(self, *, owner: str | None, name: str) -> dict[str, Any]:
        """Return the job in the queue's form: times in seconds, only fields that were given.

        Args:
            owner: the job's owner; None leaves it to the server.
            name: the job's name and experiment if the request has none.

        Raises:
            ClientError: there is no command.
        """
        if not self.command:
            raise no_command()
        called = {"name": name, "experiment": name}
        return {**({"owner": owner} if owner else {}), **called, **self.fields()}


class PlainRequest(Requested):
    """Fields of a job in the queue's form, which only the queue checks; all others are None.

    It stands for a `Request` and for its `Project`, whose models take longer to build than
    everything else that a small folder needs: `by_models` makes the former.
    """

    def __init__(
        self, given: Mapping[str, Any], others: Mapping[str, Any], by_models: Callable[[], Any]
    ) -> None:
        self._given, self._others, self._by_models = given, others, by_models

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any field
        return self._given.get(name, self._others.get(name))

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return it with some fields replaced."""
        return type(self)({**self._given, **update}, self._others, self._by_models)

    def whole(self) -> Any:  # noqa: ANN401 - a `Request`, which is not imported here
        """Return the `Request`; `ClientError` if a value is wrong."""
        return self._by_models()

    def given(self) -> dict[str, Any]:
        """Return the given fields."""
        return {name: value for name, value in self._given.items() if value is not None}


Keys = Mapping[str, Mapping[str, Any]]
"""Of each key that is read without the models: its `kind`, the `field` of the queue in a `table`,
and its bounds. Those without a `field` are not the queue's."""


def values_of(keys: Keys, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a forge.toml by their keys, whichever table they are in.

    Raises:
        ValueError: one is unknown, or the models have to tell what is wrong with it.
    """
    return {
        name: plain_value(name, value, **keys[name]) for name, value in _in_tables(keys, document)
    }


def _in_tables(keys: Keys, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    tables = {key["table"] for key in keys.values() if "table" in key}
    for name, value in document.items():
        table, inner = (name, value) if name in tables else (None, {name: value})
        if not isinstance(inner, dict):
            raise ValueError(name)  # noqa: TRY004 - as for everything that is not plain
        for key, one in inner.items():
            if key not in keys or keys[key].get("table") != table:
                raise ValueError(key)
            yield key, one


def plain_value(name: str, value: Any, *, kind: str, field: str = "", **bounds: Any) -> Any:  # noqa: ANN401 - any type
    """Return a value in the queue's form.

    Raises:
        ValueError: it is not of the very type that people should write, or out of bounds.
    """
    from forge_client.project.written import READERS  # noqa: PLC0415 - not for all who import this

    unit = field.removeprefix(name)
    value = UNITS.get(unit, READERS.get(name, lambda same: same))(value)
    if unit or (kind == "float" and type(value) is int):
        value = float(value)
    if not _is_of(value, "float" if unit else kind, name):
        raise ValueError(name)
    value = in_unit(value, unit, int if kind == "int" else float)
    if not all(holds(value, bounds[bound]) for bound, holds in BOUNDS.items() if bound in bounds):
        raise ValueError(name)
    return value


def _is_of(value: Any, kind: str, name: str) -> bool:  # noqa: ANN401 - any type
    if type(value).__name__ != kind:
        return name == "requirements" and value is False
    if kind in {"list", "dict"}:
        return all(type(one) is str for one in (value.values() if kind == "dict" else value))
    return kind != "float" or math.isfinite(value)


def merged(below: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a forge.toml with those of options, as `Request.changed` does."""
    # An image given here, in whichever way, replaces any other.
    replaced = IMAGE_WAYS if IMAGE_WAYS & options.keys() else set()
    values = {**{name: one for name, one in below.items() if name not in replaced}, **options}
    for name in below.keys() & options.keys():
        if isinstance(options[name], dict):
            values[name] = {**below[name], **options[name]}
    include, secrets = (
        [*below.get(name, ()), *options.get(name, ())] for name in ("include", "secrets")
    )
    return {**values, "include": include, "secrets": [*dict.fromkeys(secrets)] or None}


def in_unit(value: Any, unit: str, kind: type) -> Any:  # noqa: ANN401 - any type
    """Return a value as the queue has it: sizes in MiB, and what is whole there rounded up."""
    if unit == "_mb":
        return math.ceil(value / MIB)
    return math.ceil(value) if unit and kind is int else value


def no_command() -> ClientError:
    """Return the error for a job without a command."""
    return ClientError(
        "no command given",
        hint="write it after --, as in `forge submit . -- python train.py`, or as"
        " `command` in forge.toml",
        code="command_empty",
    )
