"""Records of a server's answers: their fields as attributes, without pydantic's checks."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from os.path import dirname, join
from typing import Any, ClassVar, TypeAlias

from forge_schema.model import reading
from forge_schema.model.states import StateWord

Declared: TypeAlias = Mapping[str, Any]
"""A verb, a parameter or a field; only what is so is there.

A verb has a `method`, a `path` and `parameters`. Its answer `takes` a field of what the server
says, and makes it, or each in it, into a `kind`, which may be `of_a_job`; or it is `nothing`. A
parameter has a `name`, and `where` it stands in a request, as a `field` of another name, `inside`
another one; `own` is the client's owner by default. A record has `fields`, each of a `kind`, maybe
`hidden` from people, and the `reading` of what they say.
"""


@cache
def table() -> Mapping[str, Mapping[str, Declared]]:
    """Return the `verbs` and the `records`, by their names."""
    with open(join(dirname(__file__), "verbs.json"), encoding="utf-8") as file:
        rows: dict[str, dict[str, Declared]] = json.load(file)
    return rows


class PlainRow:
    """A record with the fields that its model declares; others are left out.

    Raises:
        KeyError: a field is missing.
        ValueError: a server of another version says what no client of this one knows.
    """

    fields: ClassVar[Mapping[str, Declared]]

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        for name, field in self.fields.items():
            known = name in row or "default" not in field
            vars(self)[name] = made(row[name] if known else field["default"], field)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, vars(self)[name]) for name in self.fields)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # as of what has no order to be kept in

    def as_json(self, *, whole: bool = False) -> dict[str, Any]:
        """Return what JSON shows of it, as its model does; a `whole` one is inside another."""
        return {
            name: self._row.get(name) if field.get("kind") == "time" else _json(vars(self)[name])
            for name, field in self.fields.items()
            if whole or "hidden" not in field
        }


def made(value: Any, declared: Declared) -> Any:  # noqa: ANN401 - any JSON
    """Return a value, or each in a list, as its kind."""
    kind = declared.get("kind")
    if kind is None or value is None:
        return value
    if isinstance(value, list):
        return [made(item, declared) for item in value]
    match kind:
        case "time":
            return datetime.fromisoformat(value)
        case "state":
            return StateWord(value)
        case _:
            return _record(kind)(value)


@cache
def _record(name: str) -> type[PlainRow]:
    declared = table()["records"][name]
    bases = [getattr(reading, declared["reading"])] if "reading" in declared else []
    return type(name, (*bases, PlainRow), {"fields": declared["fields"]})


def _json(value: Any) -> Any:  # noqa: ANN401 - any field
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value.as_json(whole=True) if isinstance(value, PlainRow) else value
