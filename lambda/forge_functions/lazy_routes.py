"""Routes that FastAPI analyses when they are first asked for, as most are not for hours.

It would analyse each of them at the start, and again, with the options of its inclusion, at an
app's first request: half of what a server takes to start, and some megabytes.
"""

from collections.abc import Callable
from http import HTTPMethod
from threading import RLock
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import compile_path

# Apps of one process share routes.
_MAKING = RLock()
# What `add_api_route` takes of the router.
ROUTERS_OWN = ("dependency_overrides_provider",)


class Later:
    """An option of a route, or its endpoint, that is made when the route is."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.__name__, self.make = name, make

    def __call__(self) -> None:
        """Nothing: only what it makes is called."""


class LazyRoute(APIRoute):
    """A route that knows what it takes to match a request, and finds out the rest when needed."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 - FastAPI's own
        self.options = self._unmade = options
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {HTTPMethod(method) for method in options["methods"] or ["GET"]}
        self.name = options["name"] or endpoint.__name__
        self.include_in_schema = options["include_in_schema"]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        # Python asks for what is not there: the route is not made yet, or there is no such thing.
        with _MAKING:
            if (options := vars(self).pop("_unmade", None)) is not None:
                made = {key: _made(value) for key, value in options.items()}
                super().__init__(self.path, _made(self.endpoint), **made)
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(name)


class LazyRouter(APIRouter):
    """A router of lazy routes."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - FastAPI's own
        super().__init__(**{"route_class": LazyRoute, **options})


def _made(value: Any) -> Any:  # noqa: ANN401 - any option
    return value.make() if isinstance(value, Later) else value


def include(into: APIRouter, router: APIRouter, **options: Any) -> None:  # noqa: ANN401 - FastAPI's own
    """Add the routes of a router to another, with options for all of them."""
    for route in router.routes:
        if isinstance(route, LazyRoute):
            own = {name: value for name, value in route.options.items() if name not in ROUTERS_OWN}
            into.add_api_route(
                route.path, route.endpoint, route_class_override=type(route), **{**own, **options}
            )
        elif isinstance(route, APIWebSocketRoute):
            before = options.get("dependencies")
            into.add_api_websocket_route(route.path, route.endpoint, dependencies=before)
