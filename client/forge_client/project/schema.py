"""The JSON Schema of forge.toml, by which editors complete and check it."""

import json
from collections.abc import Mapping
from typing import Any

from forge_schema.model.spec import KEYS, MOST_NODES, JobSpec, option_of
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from forge_client.project.forge_toml import Project, ProjectConnection
from forge_client.project.request import TABLES

DIALECT = "http://json-schema.org/draft-07/schema#"
# In forge.toml they are written otherwise than the queue stores them.
OWN_FORM = {
    "command",
    "nodes",
    "image_tar",
    "checkpoint_dir",
    "checkpoint",
    "requirements",
    "extras",
    "groups",
    "parameters",
    "arguments",
}
BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
# Known only from the models; a title would only repeat the key.
LEFT_OUT = {"title", "default", "$ref", "description"}
# In text, a number that must not be 0.
NOT_ZERO = "^(?=.*[1-9])"

Schema = dict[str, Any]


class _Toml(GenerateJsonSchema):
    """TOML has no null: a key that is unset is left out."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def none_schema(self, schema: core_schema.NoneSchema) -> Schema:
        return {"not": {}} | super().none_schema(schema)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        return self.generate_inner(schema["schema"])


def schema() -> Schema:
    """Return the schema: the keys and forms of a project, within the bounds of the queue."""
    made = Project.model_json_schema(schema_generator=_Toml)
    whole = JobSpec.model_json_schema(schema_generator=_Toml)
    _bound(made, whole, whole["$defs"])
    _default(made["properties"], JobSpec)
    for table, model in TABLES.items():
        ours = made["$defs"][model.__name__]
        _bound(ours, whole["$defs"][model.__name__], whole["$defs"])
        _default(ours["properties"], KEYS[table].kind)
        _describe(ours["properties"], model)
    made["properties"]["nodes"]["anyOf"][0]["maximum"] = MOST_NODES
    _describe(made["$defs"]["ProjectConnection"]["properties"], ProjectConnection)
    _describe(made["properties"], Project)
    head = {"title": "forge.toml", "description": "A project's defaults for `forge submit`."}
    return {"$schema": DIALECT, **_untitled(made), **head}


def text() -> str:
    """Return the schema as text."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _bound(ours: Schema, queues: Schema, theirs: Mapping[str, Schema]) -> None:
    """Add the queue's bounds and words to the keys that have the same form there."""
    for key, ours_of_key in ours["properties"].items():
        theirs_of_key = _resolved(queues["properties"].get(key, {}), theirs)
        if key in OWN_FORM:
            continue
        if ours_of_key.get("type") and ours_of_key["type"] == theirs_of_key.get("type"):
            ours_of_key.update(
                {name: it for name, it in theirs_of_key.items() if name not in LEFT_OUT}
            )
        for unit in ("s", "mb"):
            _bound_with_unit(ours_of_key, queues["properties"].get(f"{key}_{unit}", {}))


def _bound_with_unit(ours: Schema, theirs: Schema) -> None:
    """Add the bounds of a time, which may be a number, and that it is not 0 to its text."""
    for form in ours.get("anyOf", [ours]):
        if form.get("type") == "number":
            form.update({name: it for name, it in theirs.items() if name in BOUNDS})
        elif theirs.get("exclusiveMinimum") == 0:
            form["pattern"] = form["pattern"].replace("^", NOT_ZERO, 1)


def _default(ours: Schema, model: type[BaseModel]) -> None:
    """Add the queue's defaults, where it has any."""
    for key, form in ours.items():
        field = model.model_fields.get(key) or model.model_fields.get(f"{key}_s")
        default = field.get_default() if field else None
        if isinstance(default, str | int | float):
            form["default"] = getattr(default, "value", default)


def _describe(ours: Schema, model: type[BaseModel]) -> None:
    """Add what each key is for to a model's properties."""
    for key, field in model.model_fields.items():
        option = option_of(field) or KEYS[key].option
        form = ours[key]
        # Beside a reference, a draft-07 reader takes no notice of anything else.
        own = {"allOf": [form]} if "$ref" in form else form
        ours[key] = {"description": option.help, **own}


def _resolved(form: Schema, defs: Mapping[str, Schema]) -> Schema:
    name = form.get("$ref", "").removeprefix("#/$defs/")
    return defs[name] if name else form


def _untitled(form: Any) -> Any:  # noqa: ANN401 - JSON has no narrower type
    if isinstance(form, list):
        return [_untitled(item) for item in form]
    if not isinstance(form, dict):
        return form
    titled = isinstance(form.get("title"), str)
    return {key: _untitled(item) for key, item in form.items() if not (key == "title" and titled)}
