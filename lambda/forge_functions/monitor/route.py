"""The metrics of a server and of its queue, for Prometheus."""

from hmac import compare_digest
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from forge_functions.auth.authentication import bearer, caller
from forge_functions.monitor.meters import Meters
from forge_functions.monitor.queue_gauges import QueueGauges
from forge_functions.services import Services, services

router = APIRouter(tags=["metrics"])


async def scope(
    request: Request,
    shared: Annotated[Services, Depends(services)],
    said: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> str | None:
    """Return the owner whose jobs the caller may see; None for all owners'.

    Raises:
        Refused: as on other paths.
    """
    key = shared.settings.metrics_key
    text = said.credentials.encode() if said else b""
    if shared.settings.metrics_open or (
        key is not None and compare_digest(text, key.get_secret_value().encode())
    ):
        return None
    return (await caller(request, said)).scope


@router.get("/metrics")
def metrics(request: Request, owner: Annotated[str | None, Depends(scope)]) -> Response:
    """Return the metrics of the queue, as far as the caller may see it, and of this server."""
    meters: Meters = request.app.state.meters
    gauges: QueueGauges = request.app.state.gauges
    text = generate_latest(meters.registry) + generate_latest(gauges.registry(owner))
    return Response(text, media_type=CONTENT_TYPE_LATEST)
