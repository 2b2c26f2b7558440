"""Metrics of an app for Prometheus: a meter around its requests, and the path `/metrics`."""

from hmac import compare_digest
from http import HTTPMethod
from time import perf_counter
from typing import Annotated

from fastapi import Depends, FastAPI, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forge_functions.auth.authentication import bearer, caller
from forge_functions.lazy_routes import LazyRouter, include
from forge_functions.routes.queue_gauges import QueueGauges
from forge_functions.services import Services, services
from forge_functions.settings import VERSION

# From a read by primary key to a claim that waits for work.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

METHODS = frozenset(HTTPMethod)
# The label of requests without a route, so that probing paths creates no new labels.
OTHER = "other"

router = LazyRouter(tags=["metrics"])


class ServerMeters:
    """Meters in their own registry, so that a process may have several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        info = Gauge("forge_info", "Its version; always 1.", ["version"], registry=self.registry)
        info.labels(version=VERSION).set(1)
        self._requests = Counter(
            "forge_http_requests",
            "Requests answered by this server, by route.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._took = Histogram(
            "forge_http_request_duration_seconds",
            "Seconds until the end of the answer; claims and streams wait for work.",
            ["route", "method"],
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        self.in_progress = Gauge(
            "forge_http_requests_in_progress", "Requests in progress.", registry=self.registry
        )
        self._claimed = Counter(
            "forge_claims", "Jobs granted to workers by this server.", registry=self.registry
        )
        self._ended = Counter(
            "forge_ends", "Ends of attempts reported to this server.", registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, took_s: float) -> None:
        """Count an answer."""
        self._requests.labels(route=route, method=method, status=str(status)).inc()
        self._took.labels(route=route, method=method).observe(took_s)

    def exchanged(self, ended: int, granted: int) -> None:
        """Count the ends that a worker reported and the jobs it got."""
        self._ended.inc(ended)
        self._claimed.inc(granted)


class RequestMeter:
    """Plain ASGI, so that streams are not buffered."""

    def __init__(self, app: ASGIApp, *, meters: ServerMeters) -> None:
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


async def scope(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> list[str] | None:
    """Return the owners whose jobs the caller may see; None for all owners'.

    Raises:
        Refused: as on other paths.
    """
    key = shared.settings.metrics_key
    text = credentials.credentials.encode() if credentials else b""
    if shared.settings.metrics_open or (
        key is not None and compare_digest(text, key.get_secret_value().encode())
    ):
        return None
    return (await caller(request, credentials)).scope


@router.get("/metrics")
def metrics(request: Request, whose: Annotated[list[str] | None, Depends(scope)]) -> Response:
    """Return the metrics of the queue, as far as the caller may see it, and of this server."""
    meters: ServerMeters = request.app.state.meters
    gauges: QueueGauges = request.app.state.gauges
    text = generate_latest(meters.registry) + generate_latest(gauges.registry(whose))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def metered(app: FastAPI) -> FastAPI:
    """Add `/metrics` to an app and return the app."""
    services: Services = app.state.services
    meters = app.state.meters = ServerMeters()
    app.state.gauges = QueueGauges(lambda: services.database, services.settings.ttl)
    services.exchanged = meters.exchanged
    include(app.router, router, include_in_schema=False)
    app.add_middleware(RequestMeter, meters=meters)
    return app
