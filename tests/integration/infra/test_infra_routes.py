"""Every path of the server leads through API Gateway to the function that serves it."""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

import pytest
from forge_functions.server import whole_app
from support.cloud.cloudformation import of_type, translated
from support.cloud.gateway_events import http_event
from support.cloud.instance import ROLE_ID
from support.http.server import server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
METHODS = ("get", "post", "put", "delete")
# A function's name in the template is part of its integration's URI.
INTEGRATION = re.compile(r"\$\{(\w+)\.Arn\}")


def routes() -> dict[tuple[str, str], str]:
    """Return the function behind each method and path of the template."""
    (api,) = of_type(translated(), "AWS::ApiGatewayV2::Api").values()
    found: dict[tuple[str, str], str] = {}
    for path, methods in api["Body"]["paths"].items():
        for method, operation in unconditional(methods).items():
            named = INTEGRATION.search(str(operation))
            assert named is not None, operation
            found[method, path] = named[1]
    return found


def unconditional(methods: dict[str, Any]) -> dict[str, Any]:
    """Return a path's methods, even if the path is there only on a condition."""
    return methods["Fn::If"][1] if "Fn::If" in methods else methods


def served_by(method: str, path: str) -> str | None:
    """Return the function that API Gateway chooses: the most specific route wins."""
    fitting = [
        (specificity(route), function)
        for (verb, route), function in routes().items()
        if verb in {method, "x-amazon-apigateway-any-method"} and fits(route, path)
    ]
    return max(fitting)[1] if fitting else None


def fits(route: str, path: str) -> bool:
    """Tell whether a route matches a path."""
    pattern = re.sub(r"\{\w+\\\+\}", ".+", re.escape(route).replace(r"\{", "{").replace(r"\}", "}"))
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path) is not None


def specificity(route: str) -> list[int]:
    """Rank a route: literal segments before variables, and those before a catch-all."""
    kinds = {True: 0, False: 1}
    return [2 if "{" not in s else kinds["+}" in s] for s in route.split("/")]


def offered(tmp_path: Path) -> list[tuple[str, str]]:
    """Return every method and path that the functions share with the server, with sample names."""
    app = whole_app(server_settings(NOWHERE, tmp_path.as_uri()))
    return [
        (method, re.sub(r"\{\w+\}", "1", path))
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method in METHODS
        and not path.startswith("/api/v1/objects/")
        # A ticket is of no use without WebSockets.
        and not path.endswith("/shells")
    ]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A function's variables, with a database that refuses connections, and the tests' own log."""
    monkeypatch.setenv("FORGE_DATABASE_URL", NOWHERE)
    monkeypatch.setenv("FORGE_STORE_URL", tmp_path.as_uri())
    monkeypatch.setenv("FORGE_SERVER_SECRET", "0123456789abcdef" * 4)
    monkeypatch.setenv("FORGE_ENROL_ROLE", ROLE_ID)
    monkeypatch.setattr("forge_functions.handlers.lambda_handler.configure_log", lambda *_: None)
    yield
    # A handler makes this thread's loop, which the next test to set another would leave unclosed.
    asyncio.get_event_loop().close()
    asyncio.set_event_loop(None)


def handler_of(function: str) -> Any:  # noqa: ANN401  whatever the module has
    """Return a handler that nobody else uses, since it keeps what it was first called with."""
    spec = find_spec(f"forge_functions.handlers.{function.lower()}")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


@pytest.mark.usefixtures("nowhere")
def test_each_path_reaches_a_function_that_knows_it(tmp_path: Path) -> None:
    handlers = {name: handler_of(name) for name in ("Submit", "Admin", "Workers", "Enrol")}
    paths = offered(tmp_path)
    assert len(paths) > 30
    for method, path in [*paths, ("get", "/openapi.json")]:
        function = served_by(method, path)
        assert function, f"nothing serves {method} {path}"
        answer = handlers[function](http_event(method.upper(), path), None)
        # A caller without credentials is refused by the route, not for lack of a route.
        assert answer["statusCode"] not in {404, 405}, f"{function} has no {method} {path}"


@pytest.mark.usefixtures("nowhere")
def test_what_is_no_other_functions_is_the_dashboards() -> None:
    dashboard = handler_of("Dashboard")
    for method, path in (("get", "/"), ("get", "/jobs/1"), ("post", "/logout"), ("get", "/none")):
        assert served_by(method, path) == "Dashboard"
    leads = dashboard(http_event("GET", "/jobs"), None)
    assert leads["statusCode"] == 303
    headers = {"accept": "text/html"}
    assert dashboard(http_event("GET", "/none", headers=headers), None)["statusCode"] == 404


def test_enrolment_has_its_own_function() -> None:
    assert served_by("post", "/api/v1/workers/enrol") == "Enrol"
    assert served_by("post", "/api/v1/workers/claim") == "Workers"
