"""Routes that are made from the verbs that the service declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
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

from forge_functions.auth.roles import AsAdmin, AsSubmitter, AsViewer, JobInPath
from forge_functions.errors import problems
from forge_functions.items import Done, Items, next_page
from forge_functions.joining.package import package
from forge_functions.middleware.bodies import Body
from forge_functions.middleware.guarded_route import Router
from forge_functions.services import Services

ROLES = {Role.VIEWER: AsViewer, Role.SUBMITTER: AsSubmitter, Role.ADMIN: AsAdmin}
# Where each class of verbs is found.
ROOMS: dict[type, Callable[[Service], Any]] = {
    Service: lambda service: service,
    Findings: lambda service: service.findings,
    Notifying: lambda service: service.notifications,
    Admin: lambda service: service.admin,
}
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
                add(router, verb, endpoint_of(verb, reach))
    return router


def add(router: Router, verb: Verb, endpoint: Endpoint) -> None:
    """Serve a verb by an endpoint."""
    router.add_api_route(
        verb.path,
        endpoint,
        methods=[verb.method],
        status_code=verb.status,
        tags=[verb.tag],
        description=verb.about,
        response_model=answer_of(verb),
        responses=problems(*verb.errors),
    )


def endpoint_of(verb: Verb, reach: Callable[[Service], Any]) -> Endpoint:
    """Return the endpoint that does a verb, in the part of the service that `reach` gives."""

    def endpoint(service: Service, request: Request, **given: Any) -> Any:  # noqa: ANN401 - as the verb
        asked = given.pop("asked", None)
        values = {
            one.here: _filled_in(verb, one, request)
            if one.where == "server"
            else _value(one, given, asked)
            for one in verb.parameters
        }
        found = getattr(reach(service), verb.name)(**values)
        return _answer(verb, _signed(found, request) if verb.signed else found, request, asked)

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
    for one in verb.parameters:
        if one.where == "path":
            kind = JobInPath if one.there == "job_id" else Annotated[one.kind, Path()]
            yield _argument(one.there, kind)
        elif one.where == "whole":
            yield _argument("asked", one.kind)
        elif one.where != "server":
            fields.append(one)
    in_query = [one for one in fields if one.where == "query"]
    in_body = [one for one in fields if one.where == "body"]
    if len(in_query) == 1:
        alone = in_query[0]
        yield _argument(alone.there, Annotated[alone.kind, Query()], alone.default)
    elif in_query:
        yield _argument("asked", Annotated[_model(verb, in_query), Query()])
    if in_body:
        model = _model(verb, in_body)
        needed = any(one.required for one in in_body)
        yield _argument("asked", model, Argument.empty if needed else model())


def _argument(name: str, kind: Any, default: Any = Argument.empty) -> Argument:  # noqa: ANN401 - any type and value
    return Argument(name, Argument.KEYWORD_ONLY, annotation=kind, default=default)


def _model(verb: Verb, fields: Iterable[Parameter]) -> type[Body]:
    named = {
        one.there: (one.kind, ... if one.required else one.sent.write(one.default, None))
        for one in fields
    }
    title = "".join(word.title() for word in f"{verb.name}_request".split("_"))
    made: type[Body] = create_model(
        title, __base__=Body, __doc__=verb.about.partition("\n\n")[0], **named
    )  # type: ignore[call-overload]
    return made


def _value(one: Parameter, given: dict[str, Any], asked: Any) -> Any:  # noqa: ANN401 - as the parameter
    if one.where == "whole":
        return one.sent.read(asked)
    return one.sent.read(given[one.there] if one.there in given else getattr(asked, one.there))


def _filled_in(verb: Verb, one: Parameter, request: Request) -> Any:  # noqa: ANN401 - as the parameter
    """Return what the server adds: how many items fill a page, its package, or its URL."""
    if one.here == "count":
        return verb.pages and verb.pages.full
    if one.here == "digest":
        return package().digest
    services: Services = request.app.state.services
    return services.url(str(request.base_url))


def _signed(found: list[Object], request: Request) -> list[Object]:
    services: Services = request.app.state.services
    url_of = services.reading(str(request.base_url))
    return [one.model_copy(update={"url": url_of(one.key)}) for one in found]


def _text(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _answer(verb: Verb, found: Any, request: Request, asked: Any) -> Any:  # noqa: ANN401 - as above
    if verb.answer is not None:
        return verb.answer.of(found)
    pages = verb.pages
    if isinstance(found, Runs):
        last = found.items[-1:] if found.more and asked.sort is None else []
        after = [next_page(request, {"before": run.job_id}) for run in last]
        return found.model_copy(update={"next": after[0] if after else None})
    if pages is not None:
        return Items[Any].page(
            found,
            request,
            pages.full or asked.count,
            lambda last: {there: _text(getattr(last, here)) for there, here in pages.after.items()},
            most_bytes=pages.most_bytes,
        )
    if isinstance(found, list):
        return {"items": found}
    return Done() if found is None else found


register_url_convertor("worker", NameConvertor())
users = router_of(lambda path: not path.startswith((ADMIN, FLEET)))
admins = router_of(lambda path: path.startswith(ADMIN))
fleet = router_of(lambda path: path.startswith(FLEET))
