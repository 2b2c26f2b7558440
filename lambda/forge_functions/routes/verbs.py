"""Routes that are made from the verbs that the service declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from inspect import Parameter as Argument
from inspect import Signature
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request
from forge_schema.model.results import Runs
from forge_schema.model.states import Role
from forge_schema.model.stored import Artifact, ArtifactChunk, LogChunk
from forge_schema.service.admin import Admin
from forge_schema.service.findings import Findings
from forge_schema.service.notifications import Notifying
from forge_schema.service.service import Service
from forge_schema.service.verb import Parameter, Verb, declared_in, item_of
from pydantic import create_model
from starlette.convertors import StringConvertor, register_url_convertor

from forge_functions.auth.authentication import (
    AsAdmin,
    AsSubmitter,
    AsViewer,
    JobInPath,
    WorkerInPath,
)
from forge_functions.bodies import Done, Items, RequestBody, next_page
from forge_functions.errors import problems
from forge_functions.joining import fingerprint_of, package
from forge_functions.lazy_routes import Later
from forge_functions.routes.guarded_route import Router
from forge_functions.services import Services

ROLES = {Role.VIEWER: AsViewer, Role.SUBMITTER: AsSubmitter, Role.ADMIN: AsAdmin}
# Where each class of verbs is found.
ROOMS: dict[type, Callable[[Service], Any]] = {
    Service: lambda service: service,
    Findings: lambda service: service.findings,
    Notifying: lambda service: service.notifications,
    Admin: lambda service: service.admin,
}
# What a path names by an id or a name.
NAMED = {"job_id": JobInPath, "worker_id": WorkerInPath}
# What workers post to: a GET of these is none of a worker, whatever its name.
POSTED_TO = ("claim", "disconnect", "enrol", "heartbeat", "join", "next", "register")
ADMIN, FLEET = "/api/v1/admin", "/api/v1/workers"
Endpoint = Callable[..., Any]
Object = TypeVar("Object", LogChunk, Artifact, ArtifactChunk)


class NameConvertor(StringConvertor):
    """A worker's id or name in a path."""

    regex = rf"(?!(?:{'|'.join(POSTED_TO)})$)[^/]+"


def router_of(chosen: Callable[[str], bool]) -> Router:
    """Return a router with the verbs whose paths are chosen."""
    router = Router(responses=problems(401, 403))
    for room, reach in ROOMS.items():
        for verb in declared_in(room):
            if chosen(verb.path):
                add(router, verb, reach)
    return router


def add(router: Router, verb: Verb, reach: Callable[[Service], Any]) -> None:
    """Serve a verb, in the part of the service that `reach` gives."""
    router.add_api_route(
        verb.path,
        Later(verb.name, partial(endpoint_of, verb, reach)),
        methods=[verb.method],
        status_code=verb.status,
        tags=[verb.tag],
        description=verb.about,
        response_model=Later("answer", partial(answer_of, verb)),
        responses=problems(*verb.errors),
    )


def endpoint_of(verb: Verb, reach: Callable[[Service], Any]) -> Endpoint:
    """Return the endpoint that does a verb, in the part of the service that `reach` gives."""

    def endpoint(service: Service, request: Request, **given: Any) -> Any:  # noqa: ANN401 - as the verb
        message, which = given.pop("message", None), given.pop("which", None)
        values = {
            parameter.name: _filled_in(verb, parameter, request)
            if parameter.where == "server"
            else _value(parameter, given, which if parameter.where == "query" else message)
            for parameter in verb.parameters
        }
        result = getattr(reach(service), verb.name)(**values)
        return _answer(verb, _signed(result, request) if verb.signed else result, request, which)

    endpoint.__name__ = verb.name
    vars(endpoint)["__signature__"] = Signature(list(_arguments(verb)))
    return endpoint


def answer_of(verb: Verb) -> Any:  # noqa: ANN401 - any type
    """Return the type of a verb's answer."""
    if verb.answer is not None:
        return verb.answer
    if (item := item_of(verb.returns)) is not None:
        items: Any = Items
        return items[item]
    return Done if verb.returns is None else verb.returns


def _arguments(verb: Verb) -> Iterator[Argument]:
    yield _argument("service", ROLES[verb.role])
    yield _argument("request", Request)
    fields: list[Parameter] = []
    for parameter in verb.parameters:
        if parameter.where == "path":
            kind = NAMED.get(parameter.name) or Annotated[parameter.kind, Path()]
            yield _argument(parameter.field, kind)
        elif parameter.where == "whole":
            yield _argument("message", parameter.kind)
        elif parameter.where != "server":
            fields.append(parameter)
    in_query = [parameter for parameter in fields if parameter.where == "query"]
    in_body = [parameter for parameter in fields if parameter.where == "body"]
    if in_query:
        yield _argument("which", Annotated[_model(verb, in_query), Query()])
    if in_body:
        model = _model(verb, in_body)
        yield _argument("message", model | None, None) if verb.bare else _argument("message", model)


def _argument(name: str, kind: Any, default: Any = Argument.empty) -> Argument:  # noqa: ANN401 - any type and value
    return Argument(name, Argument.KEYWORD_ONLY, annotation=kind, default=default)


def _model(verb: Verb, fields: Iterable[Parameter]) -> type[RequestBody]:
    named = {
        parameter.field: (
            parameter.kind,
            ... if parameter.required else parameter.sent.write(parameter.default, None),
        )
        for parameter in fields
    }
    title = "".join(word.title() for word in f"{verb.title}_request".split("_"))
    made: type[RequestBody] = create_model(
        title, __base__=RequestBody, __doc__=verb.about.partition("\n\n")[0], **named
    )  # type: ignore[call-overload]
    return made


def _value(parameter: Parameter, given: dict[str, Any], message: Any) -> Any:  # noqa: ANN401 - as the parameter
    if parameter.where == "whole":
        return parameter.sent.read(message)
    if parameter.where == "body" and message is None:
        return parameter.default
    return parameter.sent.read(
        given[parameter.field] if parameter.field in given else getattr(message, parameter.field)
    )


def _filled_in(verb: Verb, parameter: Parameter, request: Request) -> Any:  # noqa: ANN401 - as the parameter
    """Return what the server adds: a page's length, its package, its authority, or its URL."""
    if parameter.name == "count":
        return verb.pages and verb.pages.full
    if parameter.name == "digest":
        return package().digest
    services: Services = request.app.state.services
    if parameter.name == "authority":
        return fingerprint_of(services.settings)
    return services.url(str(request.base_url))


def _signed(result: list[Object], request: Request) -> list[Object]:
    services: Services = request.app.state.services
    url_of = services.reading(str(request.base_url))
    return [stored.model_copy(update={"url": url_of(stored.key)}) for stored in result]


def _text(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _answer(verb: Verb, result: Any, request: Request, which: Any) -> Any:  # noqa: ANN401 - as above
    if verb.answer is not None:
        return verb.answer.of(result)
    pages = verb.pages
    if isinstance(result, Runs):
        last = result.items[-1:] if result.more and which.sort is None else []
        after = [next_page(request, {"before": run.job_id}) for run in last]
        return result.model_copy(update={"next": after[0] if after else None})
    if pages is not None:
        return Items[Any].page(
            result,
            request,
            pages.full or which.count,
            lambda last: {name: _text(getattr(last, field)) for name, field in pages.after.items()},
            most_bytes=pages.most_bytes,
        )
    if isinstance(result, list):
        return {"items": result}
    return Done() if result is None else result


register_url_convertor("worker", NameConvertor())
users = router_of(lambda path: not path.startswith((ADMIN, FLEET)))
admins = router_of(lambda path: path.startswith(ADMIN))
fleet = router_of(lambda path: path.startswith(FLEET))
