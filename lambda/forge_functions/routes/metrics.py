"""The metrics of a server and of its queue, for Prometheus."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from forge_functions.auth.authentication import bearer, body_of, caller
from forge_functions.services import Services, services

router = APIRouter(tags=["metrics"])


def may_scrape(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    said: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
    body: Annotated[bytes, Depends(body_of)],
) -> None:
    """Accept every caller with a key, or anybody if the settings allow it.

    Raises:
        Refused: as on other paths.
    """
    if not shared.settings.metrics_open:
        caller(request, shared, said, body)


@router.get("/metrics", dependencies=[Depends(may_scrape)])
def metrics(request: Request) -> Response:
    """Return the metrics of the queue and this server."""
    registry: CollectorRegistry = request.app.state.meters.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
