"""Writes the table of verbs and records that `forge_client.plain` reads, which has no pydantic.

`PYTHONPATH=tests python -m support.client.plain_table` brings it up to date.
"""

from __future__ import annotations

import inspect
import json
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from forge_client.plain import backend as plain
from forge_schema.model import reading
from forge_schema.model.states import StateWord
from forge_schema.model.stored import Stored
from forge_schema.service import parameters, submitting
from forge_schema.service.findings import Findings
from forge_schema.service.service import Service
from forge_schema.service.verb import Sent, Verb, declared_in, item_of
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forge_schema.service.verb import Parameter
    from pydantic.fields import FieldInfo

PLACE = Path(plain.__file__).with_name("verbs.json")
# They check a value, or write it as the server does; whoever needs that is the whole client.
SAME = {
    Sent().write,
    parameters._seen,
    parameters._states,
    *(
        sent.write
        for kind in (parameters.JobId, parameters.JobIds)
        for sent in get_args(kind)
        if isinstance(sent, Sent)
    ),
}
JOBS = get_args(submitting.NewJobs)[1].write


class NotPlainError(Exception):
    """It takes the whole client."""


def text() -> str:
    """Return the table, a verb or a record a line."""
    records: dict[str, Any] = {}
    verbs: dict[str, Any] = {}
    for verb in (*declared_in(Service), *declared_in(Findings)):
        needed: dict[str, Any] = {}
        try:
            row = _verb(verb, needed)
        except NotPlainError:
            continue
        assert verb.name not in verbs
        verbs[verb.name] = row
        records |= needed
    return f'{{\n"verbs": {_lines(verbs)},\n"records": {_lines(records)}\n}}\n'


def _lines(rows: Mapping[str, Any]) -> str:
    listed = (f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    return "{\n" + ",\n".join(listed) + "\n}"


def _verb(verb: Verb, records: dict[str, Any]) -> dict[str, Any]:
    if not verb.again:
        raise NotPlainError
    sent = [one for one in verb.parameters if one.where != "server"]
    return {
        "method": verb.method,
        "path": verb.path,
        "parameters": [_parameter(one) for one in sent],
        **_answer(verb, records),
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    if one.sent.write not in {*SAME, JOBS, parameters._own}:
        raise NotPlainError
    found = {
        "name": one.name,
        "field": one.field if one.field != one.name else None,
        "where": one.where,
        "own": one.sent.write is parameters._own,
        "inside": "jobs" if one.sent.write is JOBS else None,
    }
    default = {} if one.default is inspect.Parameter.empty else {"default": one.default}
    return {name: value for name, value in found.items() if value} | default


def _answer(verb: Verb, records: dict[str, Any]) -> dict[str, Any]:
    if verb.answer is not None:
        names = list(verb.answer.model_fields)
        if len(names) > 1 or "value" in vars(verb.answer):
            raise NotPlainError
        return {"takes": names[0], **_kind(verb.answer.model_fields[names[0]].annotation, records)}
    if (item := item_of(verb.returns)) is not None:
        of_a_job = isinstance(item, type) and issubclass(item, Stored)
        return {
            "takes": "items",
            **_kind(item, records),
            **({"of_a_job": True} if of_a_job else {}),
        }
    return {"nothing": True} if verb.returns is None else _kind(verb.returns, records)


def _kind(annotation: Any, records: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  any type
    """Return what a value, or each in a list of them, is made into; nothing of other JSON."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inner[0], records)
    if kinds := [one for one in inner if one not in {NoneType, ...}]:
        found = [_kind(one, records) for one in kinds]
        if any(found) and (len(found) > 1 or origin is dict):
            raise NotPlainError
        return found[0]
    if not isinstance(annotation, type):
        return {}
    if issubclass(annotation, BaseModel):
        _record(annotation, records)
        return {"kind": annotation.__name__}
    names = {datetime: "time", StateWord: "state"}
    return {"kind": names[annotation]} if annotation in names else {}


def _record(model: type[BaseModel], records: dict[str, Any]) -> None:
    if model.__name__ in records:
        return
    shared = next((kind for kind in model.__mro__ if kind.__module__ == reading.__name__), None)
    own = [kind for kind in model.__mro__ if kind is not shared and issubclass(kind, BaseModel)]
    shows = {name for kind in own for name, one in vars(kind).items() if isinstance(one, property)}
    if shows - vars(BaseModel).keys() or model.__pydantic_decorators__.computed_fields:
        raise NotPlainError
    records[model.__name__] = {}
    fields = {name: _field(field, records) for name, field in model.model_fields.items()}
    records[model.__name__] = {"fields": fields} | ({"reading": shared.__name__} if shared else {})


def _field(field: FieldInfo, records: dict[str, Any]) -> dict[str, Any]:
    default = field.get_default(call_default_factory=True)
    return {
        **_kind(field.annotation, records),
        **({} if default is PydanticUndefined else {"default": default}),
        **({} if field.repr else {"hidden": True}),
    }


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
