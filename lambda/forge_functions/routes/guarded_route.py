"""Routes that authenticate before parsing a body, and reject bodies made to be slow."""

import json
from collections.abc import Callable, Coroutine, Iterator
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from forge_schema.model.quantities import counted
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from forge_functions.auth import authentication, worker
from forge_functions.lazy_routes import LazyRoute, LazyRouter
from forge_functions.services import Services

FORM = "application/x-www-form-urlencoded"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
# Forge's own objects have fewer than a hundred fields; users' documents may have more.
MOST_FIELDS = 10_000
IDENTIFY = {authentication.caller: authentication.identify, worker.worker: worker.identify}


class GuardedRequest(Request):
    """Parses the body outside the event loop, and rejects objects with very many fields.

    Whatever `curl -d` calls it: no path takes a form.
    """

    @property
    def headers(self) -> Headers:
        """The headers, with JSON for the type of a form."""
        headers = super().headers
        if not headers.get("content-type", "").startswith(FORM):
            return headers
        return Headers({**headers, "content-type": "application/json"})

    async def json(self) -> Any:  # noqa: ANN401 - Starlette's own
        if not hasattr(self, "_json"):
            self._json = await self._value(await self.body())
        return self._json

    async def _value(self, body: bytes) -> Any:  # noqa: ANN401 - any JSON value
        # A quick look that may count too many.
        if body.count(b":") <= MOST_FIELDS:
            return await run_in_threadpool(json.loads, body)
        shared: Services = self.app.state.services
        async with shared.large_body:
            return await run_in_threadpool(_bounded, body)


class GuardedRoute(LazyRoute):
    """Authenticates a request by its head, before its body is read."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        calls = set(_calls(self.dependant))
        identifies = [identify for call, identify in IDENTIFY.items() if call in calls]

        async def guarded(request: Request) -> Response:
            known = GuardedRequest(request.scope, request.receive)
            for identify in identifies:
                await identify(known)
            return await handle(known)

        return guarded


class Router(LazyRouter):
    """A router of guarded routes."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - FastAPI's own
        super().__init__(**{"route_class": GuardedRoute, **options})


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for below in dependant.dependencies:
        yield from _calls(below)


def _bounded(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(body, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MOST_FIELDS:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST,
            f"an object in the body has more than {counted(MOST_FIELDS, 'field')}",
        )
    return dict(pairs)
