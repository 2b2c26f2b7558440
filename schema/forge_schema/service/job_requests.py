"""Job requests: complete jobs, or templates with changes."""

from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from forge_schema.model.fields import KnownFields
from forge_schema.model.job import OWN


class _AsJob:
    """Documents a dict as a job in OpenAPI: the fields of JobSpec without the owner."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = _schema_of_job(handler)
        required = [name for name in whole["required"] if name != "owner"]
        return {"oneOf": [{**whole, "title": "Job", "required": required}, _changed(whole)]}


class _AsTemplate:
    """Documents a dict as a template: the allowed fields of JobSpec, all optional."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**_of_many(_optional(_schema_of_job(handler))), "title": "JobConfig"}


class _AsScheduled:
    """Documents a dict as the job of a schedule: complete, but for the fields of one job."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = _of_many(_schema_of_job(handler))
        required = [name for name in whole["required"] if name not in OWN]
        return {**whole, "title": "ScheduledJob", "required": required}


class _AsChanges:
    """Documents a dict as changes of a job: the fields that can be changed, all optional."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        from forge_schema.service.changing import CHANGEABLE

        whole = _optional(_schema_of_job(handler))
        fields = {name: whole["properties"][name] for name in CHANGEABLE}
        # What a job may not combine, none of these fields can break.
        rules = {"allOf", "anyOf", "oneOf"}
        whole = {name: value for name, value in whole.items() if name not in rules}
        return {**whole, "title": "JobChanges", "properties": fields}


NIGHTLY = {"name": "nightly", "command": ["make", "eval"]}
JobRequest = Annotated[dict[str, Any], _AsJob()]
JobConfig = Annotated[
    dict[str, Any], _AsTemplate(), Field(examples=[{**NIGHTLY, "queue": "night"}])
]
JobChanges = Annotated[
    dict[str, Any], _AsChanges(), Field(examples=[{"priority": 5, "queue": "night"}])
]
ScheduledJob = Annotated[dict[str, Any], _AsScheduled(), Field(examples=[NIGHTLY])]

LARGEST_BATCH = 10_000
EXAMPLE = {
    "name": "digits",
    "command": ["python", "train.py", "--epochs", "20"],
    "bundle_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "resources": {"gpus": 1, "memory_mb": 8192},
    "labels": {"zone": "eu*"},
    "idempotency_key": "digits-2026-11-21",
}


class NewJobs(KnownFields):
    """Jobs, each complete or a config with changes; or one, without the list around it.

    Only an admin may set an owner.
    """

    jobs: Annotated[
        list[JobRequest],
        Field(
            min_length=1,
            max_length=LARGEST_BATCH,
            examples=[[EXAMPLE], [{"config_name": "nightly", "priority": 10}]],
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:  # noqa: ANN401 - any input
        return {"jobs": [value]} if isinstance(value, dict) and "jobs" not in value else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        named = handler(core)
        schema = handler.resolve_ref_schema(named)
        listed = dict(schema)
        schema.clear()
        schema |= {"anyOf": [listed, *listed["properties"]["jobs"]["items"]["oneOf"]]}
        return named


def _schema_of_job(handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    # Clients name these types, and the model of a job takes a while to import.
    from forge_schema.model.spec import JobSpec

    return handler.resolve_ref_schema(handler(JobSpec.__pydantic_core_schema__))


def _of_many(whole: JsonSchemaValue) -> JsonSchemaValue:
    """Leave out the fields that belong to one job."""
    fields = {name: value for name, value in whole["properties"].items() if name not in OWN}
    return {**whole, "properties": fields}


def _changed(whole: JsonSchemaValue) -> JsonSchemaValue:
    name = {"type": "string", "minLength": 1, "maxLength": 200, "title": "Config Name"}
    optional = _optional(whole)
    fields = {"config_name": name, **optional["properties"]}
    title = "JobFromTemplate"
    return {**optional, "title": title, "required": ["config_name"], "properties": fields}


def _optional(whole: JsonSchemaValue) -> JsonSchemaValue:
    fields = {
        name: {key: word for key, word in value.items() if key != "default"}
        for name, value in whole["properties"].items()
    }
    return {**{k: v for k, v in whole.items() if k != "required"}, "properties": fields}
