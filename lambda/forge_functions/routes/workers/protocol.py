"""The lease protocol over HTTP: register, claim, renew, listen, prepare, disconnect."""

from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from forge_schema.access import tokens
from forge_schema.access.tokens import TokenKind, TokenMalformed
from forge_schema.model.errors import ForgeError
from forge_schema.protocol import messages
from forge_schema.protocol.answers import (
    Claimed,
    Hints,
    Nothing,
    Registered,
    Renewed,
    SignedUrls,
    Stands,
    Upcoming,
)
from forge_schema.queue.claim import next_inputs, next_job
from forge_schema.queue.registry import Registry
from forge_schema.read.audit import Audit
from forge_schema.storage.file_store import FileStore

from forge_functions.auth.worker import HEADER, WorkerCaller, absent, worker
from forge_functions.bodies import IdInPath as JobId
from forge_functions.errors import Refused, problems
from forge_functions.lazy_routes import include
from forge_functions.objects import is_input
from forge_functions.routes.guarded_route import GuardedRoute, Handler, Router
from forge_functions.routes.workers import long_claim
from forge_functions.routes.workers.long_claim import LongClaim
from forge_functions.services import Services, Shared

AsWorker = Annotated[WorkerCaller, Depends(worker)]
WaitS = Annotated[float, Query(ge=0, le=60, description="seconds; the server may wait for less")]
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {long_claim.MEDIA_TYPE: {"schema": {"type": "string"}}}}
}


class NotedRoute(GuardedRoute):
    """Records in the audit trail who was refused, from where and why, like those accepted."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def noting(request: Request) -> Response:
            try:
                return await handle(request)
            except (Refused, RequestValidationError) as error:
                why = error.code if isinstance(error, Refused) else "invalid"
                await run_in_threadpool(_note, request, why)
                raise

        return noting


router = Router(prefix="/api/v1/workers", tags=["workers"], responses=problems(401))
noted = Router(route_class=NotedRoute)


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
            "suspected": renewal.suspected,
        }
    )


@router.post("/disconnect")
def disconnect(body: messages.Goodbye, caller: AsWorker, shared: Shared) -> Nothing:
    """Disconnect. A newer boot of the worker is not affected."""
    Registry(shared.database, actor=caller.actor).disconnect(caller.id, body.boot_id, body.why)
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
        events = long_claim.events(shared, caller)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type=long_claim.MEDIA_TYPE, headers=headers)
    heard = await long_claim.next_hints(shared.hub, caller.id, waits_s)
    return Hints(items=heard, wait_s=waits_s)


@router.post("/next")
def upcoming(body: messages.Next, caller: AsWorker, shared: Shared) -> Upcoming:
    """Show the job that the worker would likely be granted next. It stays in the queue."""
    with shared.matching.lanes(shared.database, caller.id, body.boot_id) as lanes:
        if body.fresh:
            lanes.forget()
        grant = next_job(shared.database, lanes, body.past)
        return Upcoming(grant=grant, drafted=lanes.drafted is not None)


@router.post("/next/{job_id}/objects", responses=problems(404))
def inputs(
    job_id: JobId, body: messages.InputsWanted, caller: AsWorker, shared: Shared, request: Request
) -> SignedUrls:
    """Sign URLs of a waiting job's bundle or saved image, if the worker could run it."""
    job = next_inputs(shared.database, caller.id, job_id)
    if job is None or not all(
        is_input(job["bundle_digest"], job["image_tar"], key, shared.store) for key in body.keys
    ):
        raise absent()
    signer = shared.signer(str(request.base_url))
    return SignedUrls(urls=[signer.get(key) for key in body.keys])


def _note(request: Request, why: str) -> None:
    shared: Services = request.app.state.services
    address = request.client.host if request.client else ""
    detail: dict[str, object] = {"said": _claimed_id(request), "from": address, "why": why}
    with suppress(ForgeError):
        # Limited per minute and address, so that a flood of refusals does not fill the trail.
        shared.failures.check(f"register@{address}")
        shared.failures.count(f"register@{address}")
        Audit(shared.database).note("anonymous", "registration_refused", detail)


def _claimed_id(request: Request) -> str:
    """Return the unverified id in a token."""
    try:
        return tokens.parse(request.headers.get(HEADER, ""), TokenKind.WORKER).id
    except TokenMalformed:
        return ""


include(router, noted)
