"""The lease protocol over HTTP: register, claim, renew, listen, disconnect."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from forge_schema.protocol import messages
from forge_schema.protocol.answers import Claimed, Hints, Nothing, Registered, Renewed, Stands
from forge_schema.queue.registry import Registry
from forge_schema.storage.file_store import FileStore

from forge_functions.auth.worker import WorkerCaller, worker
from forge_functions.errors import problems
from forge_functions.middleware.guarded_route import Router
from forge_functions.registration import NotedRoute
from forge_functions.services import Shared
from forge_functions.streams import long_claim
from forge_functions.streams.long_claim import LongClaim

AsWorker = Annotated[WorkerCaller, Depends(worker)]
WaitS = Annotated[float, Query(ge=0, le=60, description="seconds; the server may wait for less")]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {long_claim.MEDIA_TYPE: {"schema": {"type": "string"}}}}
}

router = Router(prefix="/api/v1/workers", tags=["workers"], responses=problems(401))
noted = APIRouter(route_class=NotedRoute)


@noted.post("/register", responses=problems(404, 409))
def register(body: messages.Register, caller: AsWorker, shared: Shared) -> Registered:
    """Register a boot of the worker, under the name that an admin gave it."""
    if shared.registrations is not None:
        shared.registrations.take(f"worker:{caller.id}")
    registry = Registry(shared.database, actor=caller.actor, alive=shared.settings.ttl)
    kind = registry.register_known(caller.id, body)
    settings = shared.settings
    return Registered(
        worker_id=caller.id,
        name=caller.name,
        kind=kind,
        heartbeat_s=settings.heartbeat_s,
        lease_ttl_s=settings.lease_ttl_s,
        queue_id=registry.queue_id(),
        small_objects=isinstance(shared.store, FileStore),
    )


@router.post("/claim", responses=problems(404, 409))
async def claim(
    body: messages.Claim, caller: AsWorker, shared: Shared, request: Request
) -> Claimed:
    """End leases and claim jobs in one request. Wait for work if there is none."""
    return await LongClaim(shared, caller, body).run(request)


@router.post("/heartbeat", responses=problems(409))
def heartbeat(body: messages.Heartbeat, caller: AsWorker, shared: Shared) -> Renewed:
    """Renew leases. Returns the status of each and what the worker is asked to do."""
    queue = shared.queue(caller.actor)
    renewal = queue.renew(caller.id, body.boot_id, body.leases, body.status, body.condition)
    standings = [Stands.of(fence, standing) for fence, standing in renewal.standings.items()]
    return Renewed.model_validate(
        {
            "standings": standings,
            "command": renewal.command,
            "gangs_after_s": renewal.gangs_after_s,
        }
    )


@router.post("/disconnect")
def disconnect(body: messages.Boot, caller: AsWorker, shared: Shared) -> Nothing:
    """Disconnect. A newer boot of the worker is not affected."""
    Registry(shared.database, actor=caller.actor).disconnect(caller.id, body.boot_id)
    return Nothing()


@router.get("/stream", response_model=Hints, responses=STREAM)
async def stream(
    caller: AsWorker, shared: Shared, wait_s: WaitS = 60.0, accept: Annotated[str, Header()] = ""
) -> Response | Hints:
    """Listen for hints of work and requests: a stream of server-sent events, or the next one."""
    waits_s = min(wait_s, shared.settings.long_poll_s)
    if shared.settings.long_poll_s <= 0:
        # Do not wait if calls are billed by time.
        return Hints()
    if long_claim.MEDIA_TYPE in accept:
        told = long_claim.events(shared, caller)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(told, media_type=long_claim.MEDIA_TYPE, headers=headers)
    heard = await long_claim.next_hints(shared.hub, caller.id, waits_s)
    return Hints(items=heard, wait_s=waits_s)


router.include_router(noted)
