"""The functions of an HTTP API, served on loopback without AWS."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from forge_functions.app import create_app
from starlette.requests import Request
from starlette.responses import Response
from support.cloud.gateway_events import http_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from fastapi import APIRouter, FastAPI
    from forge_functions.services import Services
    from forge_functions.settings import ServerSettings
    from starlette.types import Receive, Scope, Send

Event = dict[str, Any]
Answer = dict[str, Any]
TEXT = ("text/", "application/json", "application/javascript", "application/xml")
_first_apps: dict[tuple[int, ...], FastAPI] = {}
FLEET = re.compile(r"/api/v1/workers(/\d+)?")


class Functions:
    """Calls handlers as Lambda does: one event at a time, in one thread, with JSON in between."""

    def __init__(self) -> None:
        self._modules: dict[str, Any] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lambda")

    def call(self, function: str, event: Event) -> Any:  # noqa: ANN401  whatever it returns
        """Invoke a function and return its answer."""
        return self._thread.submit(self._call, function, json.dumps(event)).result(timeout=60)

    def close(self) -> None:
        self._thread.submit(self._close).result(timeout=60)
        self._thread.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request as API Gateway does."""
        assert scope["type"] == "http", scope["type"]
        request = Request(scope, receive)
        event = event_of(request, await request.body())
        loop = asyncio.get_running_loop()
        name = function_of(request.url.path)
        answer = await loop.run_in_executor(self._thread, self._call, name, json.dumps(event))
        await response_of(answer)(scope, receive, send)

    def _call(self, function: str, event: str) -> Any:  # noqa: ANN401  as above
        if function not in self._modules:
            self._modules[function] = loaded(function)
        answer = self._modules[function].handler(json.loads(event), None)
        return json.loads(json.dumps(answer))

    def _close(self) -> None:
        for name, module in self._modules.items():
            if name == "sweep":
                module.steps()[0]._database.close()
            else:
                module.handler.services.close()
        with suppress(RuntimeError):  # only the tick was called
            asyncio.get_event_loop().close()


@contextmanager
def functions(settings: ServerSettings) -> Iterator[Functions]:
    """Yield the functions, with settings as the environment variables that they read."""
    given = settings.model_dump(
        include={"database_url", "store_url", "heartbeat_s", "lease_ttl_s", "body_limit_bytes"}
    )
    given["server_secret"] = settings.server_secret.get_secret_value()
    variables = {f"FORGE_{name.upper()}": str(value) for name, value in given.items()}
    lent = Functions()
    # A process configures its log once, and the functions share this process.
    with (
        patch.dict("os.environ", variables),
        patch("forge_functions.handlers.lambda_handler.create_app", quick_app),
        patch("forge_functions.handlers.lambda_handler.configure_log"),
        patch("forge_schema.program.log.configure_log"),
    ):
        try:
            yield lent
        finally:
            lent.close()


def quick_app(services: Services, *routers: APIRouter) -> FastAPI:
    """Return the handler's app; all apps of these routers in this process share their routes.

    At an app's first request FastAPI prepares all its routes, which takes a third of a second.
    """
    app = create_app(services, *routers)
    # Routers live as long as their modules, and cannot be hashed.
    first = _first_apps.setdefault(tuple(map(id, routers)), app)
    app.router.routes[:] = first.router.routes
    return app


def loaded(function: str) -> ModuleType:
    """Import the function's module again, since a handler caches what its first call created."""
    spec = find_spec(f"forge_functions.handlers.{function}")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(path: str) -> str:
    """Return the function that the template routes a path to."""
    if path.startswith("/api/v1/admin") or FLEET.fullmatch(path):
        return "admin"
    if path.startswith("/api/v1/workers"):
        return "workers"
    known = path.startswith("/api/") or path in {"/health", "/openapi.json"}
    return "submit" if known else "dashboard"


def event_of(request: Request, body: bytes) -> Event:
    """Return the event, payload format 2.0, that API Gateway creates from a request."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope["query_string"].decode("latin-1")
    cookies = headers.pop("cookie", "")
    event = http_event(request.method, raw.decode("latin-1"), headers=headers, query=query)
    if cookies:
        event["cookies"] = cookies.split("; ")
    if body:
        text = headers.get("content-type", "").startswith(TEXT) and _is_utf8(body)
        event["isBase64Encoded"] = not text
        event["body"] = body.decode() if text else base64.b64encode(body).decode()
    return event


def response_of(answer: Answer) -> Response:
    """Return the response that API Gateway creates from a function's answer."""
    body = answer.get("body", "")
    content = base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()
    response = Response(content, answer["statusCode"])
    for name, value in (answer.get("headers") or {}).items():
        response.headers[name] = value
    for cookie in answer.get("cookies") or []:
        response.headers.append("set-cookie", cookie)
    return response


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
