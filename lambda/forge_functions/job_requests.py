"""Job requests: complete jobs, or job configs with changes."""

from typing import Annotated, Any

from forge_schema.model.spec import JobSpec
from forge_schema.service.submitting import OWN
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class _AsJob:
    """Documents a dict as a job in OpenAPI: the fields of JobSpec without the owner."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = _schema_of_job(handler)
        required = [name for name in whole["required"] if name != "owner"]
        return {"oneOf": [{**whole, "title": "Job", "required": required}, _changed(whole)]}


class _AsTemplate:
    """Documents a dict as a job config: the allowed fields of JobSpec, all optional."""

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


JobRequest = Annotated[dict[str, Any], _AsJob()]
JobConfig = Annotated[dict[str, Any], _AsTemplate()]
ScheduledJob = Annotated[dict[str, Any], _AsScheduled()]


def _schema_of_job(handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    return handler.resolve_ref_schema(handler(JobSpec.__pydantic_core_schema__))


def _of_many(whole: JsonSchemaValue) -> JsonSchemaValue:
    """Leave out the fields that belong to one job."""
    fields = {name: said for name, said in whole["properties"].items() if name not in OWN}
    return {**whole, "properties": fields}


def _changed(whole: JsonSchemaValue) -> JsonSchemaValue:
    name = {"type": "string", "minLength": 1, "maxLength": 200, "title": "Config Name"}
    optional = _optional(whole)
    fields = {"config_name": name, **optional["properties"]}
    title = "JobFromTemplate"
    return {**optional, "title": title, "required": ["config_name"], "properties": fields}


def _optional(whole: JsonSchemaValue) -> JsonSchemaValue:
    fields = {
        name: {key: word for key, word in said.items() if key != "default"}
        for name, said in whole["properties"].items()
    }
    return {**{k: v for k, v in whole.items() if k != "required"}, "properties": fields}
