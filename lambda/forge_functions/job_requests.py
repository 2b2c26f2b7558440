"""Job requests: complete jobs, or templates with changes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi.exceptions import RequestValidationError
from forge_schema.model.fields import Word
from forge_schema.model.spec import JobSpec
from forge_schema.queue.templates import Templates
from pydantic import BaseModel, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from forge_functions.auth.caller import Caller, forbidden
from forge_functions.services import Services

Model = TypeVar("Model", bound=BaseModel)
Fields: TypeAlias = Mapping[str, Any]
# Fields that a template cannot have.
OWN = ("owner", "idempotency_key")
# Completes any template to a job, so that its fields can be validated.
SAMPLE = {"name": "sample", "command": ["sample"], "owner": "sample"}


class Reference(BaseModel):
    """A template by its name."""

    owner: Word
    config_name: Word


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
        whole = _optional(_schema_of_job(handler))
        fields = {name: said for name, said in whole["properties"].items() if name not in OWN}
        return {**whole, "title": "JobConfig", "properties": fields}


JobRequest = Annotated[dict[str, Any], _AsJob()]
JobConfig = Annotated[dict[str, Any], _AsTemplate()]


def _schema_of_job(handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    return handler.resolve_ref_schema(handler(JobSpec.__pydantic_core_schema__))


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


def specs(shared: Services, who: Caller, requests: Sequence[Fields]) -> list[JobSpec]:
    """Return the requested jobs, validated.

    Raises:
        Refused: 403 for another owner's jobs.
        NoSuchTemplate: the owner does not have such a template.
        RequestValidationError: a job is invalid; the error has its place in the request.
    """
    return [_spec(shared, who, n, request) for n, request in enumerate(requests)]


def _spec(shared: Services, who: Caller, n: int, request: Fields) -> JobSpec:
    place = ("body", "jobs", n)
    fields = {"owner": who.owner, **request}
    if fields["owner"] != who.owner and not who.admin:
        raise forbidden("only an admin may submit jobs of another owner")
    if "config_name" in fields:
        named = {name: fields[name] for name in ("owner", "config_name")}
        template = _template(shared, _checked(Reference, named, place))
        del fields["config_name"]
        fields = merged(template, fields)
    return _checked(JobSpec, fields, place)


def _template(shared: Services, named: Reference) -> Fields:
    templates = Templates(shared.database, owner=named.owner, actor="anonymous")
    spec: Fields = templates.get(named.config_name)["spec"]
    return spec


def check_config(config: Fields) -> None:
    """Reject a template from which no job could be made.

    Raises:
        RequestValidationError: a field is unknown or invalid.
    """
    place = ("body", "spec")
    if taken := [name for name in OWN if name in config]:
        fault = {"loc": (*place, taken[0]), "msg": "a template cannot have it"}
        raise RequestValidationError([fault])
    _checked(JobSpec, {**SAMPLE, **config}, place)


def _checked(model: type[Model], fields: Fields, place: tuple[str | int, ...]) -> Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = [{**fault, "loc": (*place, *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error


def merged(below: Fields, above: Fields) -> dict[str, Any]:
    """Overlay fields with others. Objects are merged; everything else is replaced."""
    both = {
        name: merged(below[name], said)
        for name, said in above.items()
        if isinstance(said, Mapping) and isinstance(below.get(name), Mapping)
    }
    return {**below, **above, **both}
