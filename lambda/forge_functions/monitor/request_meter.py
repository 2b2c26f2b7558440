"""Measure the duration and the status of every request."""

from http import HTTPMethod
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.monitor.meters import Meters

METHODS = frozenset(HTTPMethod)
# The label of requests without a route, so that probing paths creates no new labels.
OTHER = "other"


class RequestMeter:
    """Plain ASGI, so that streams are not buffered."""

    def __init__(self, app: ASGIApp, *, meters: Meters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._meters.in_progress.track_inprogress():
            try:
                await self._app(scope, receive, sending)
            finally:
                method = scope["method"] if scope["method"] in METHODS else OTHER
                self._meters.answered(route_of(scope), method, status, perf_counter() - began)


def route_of(scope: Scope) -> str:
    """Return the path of the route that served a request, with its names in braces."""
    return str(getattr(scope.get("route"), "path", OTHER))
