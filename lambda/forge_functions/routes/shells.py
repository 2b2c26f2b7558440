"""Shells inside running jobs: `forge exec`, `forge ssh` and `forge port` from any machine."""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import jwt
from fastapi import WebSocket
from fastapi.concurrency import run_in_threadpool
from forge_schema.access.api_keys import Keys
from forge_schema.access.shells import Nonces, Shells
from forge_schema.database.pool import DatabaseUnreachable
from forge_schema.model.lease import Fence
from forge_schema.queue.attempt_records import OwnLeases
from forge_schema.service.caller import Caller
from forge_schema.shell import CALLER_PATH, LEASE, WORKER_PATH, ShellTicket, ShellWanted

from forge_functions.auth.authentication import AsSubmitter, JobInPath
from forge_functions.auth.short_token import ALGORITHM, secret
from forge_functions.errors import problems
from forge_functions.routes.guarded_route import Router
from forge_functions.services import Services, Shared
from forge_functions.streams import relay
from forge_functions.streams.relay import LASTS_S, Shell, Ticket, close, digest

if TYPE_CHECKING:
    from forge_functions.services import Services

router = Router(tags=["jobs"])
PURPOSE = b"forge shell ticket"
BEARER = "Bearer "
# Whose nonces tickets are: no key and no worker has this name.
HOLDER = "shell ticket"


@router.post("/api/v1/queue/jobs/{job_id}/shells", responses=problems(401, 403, 404, 409))
def ask(service: AsSubmitter, job_id: JobInPath, body: ShellWanted, shared: Shared) -> ShellTicket:
    """Ask to enter a running job, with a WebSocket to `/api/v1/queue/shells`."""
    worker_id, worker = service.shell(job_id, body)
    order = body.model_dump_json()
    ticket = issue_ticket(shared, service.caller, job_id, worker_id, order)
    return ShellTicket(ticket=ticket, order=order, worker=worker)


@router.websocket(CALLER_PATH)
async def enter(caller: WebSocket) -> None:
    """Serve a caller that shows a ticket; another one is answered 403."""
    shared: Services = caller.app.state.services
    ticket = read_ticket(shared, caller.headers.get("Authorization", ""))
    if ticket is None:
        await caller.close()
        return
    await caller.accept()
    use = partial(use_ticket, shared, ticket)
    call = partial(_call, shared, ticket.worker_id, ticket.id)
    await shared.relay.serve(caller, ticket, use, call)


@router.websocket(WORKER_PATH + "/{shell_id}")
async def come(worker: WebSocket, shell_id: str) -> None:
    """Take a worker to the caller that waits for it; its lease of the job identifies it."""
    shared: Services = worker.app.state.services
    shell, fence = shared.relay.waiting(shell_id), _fence(worker.headers.get(LEASE, ""))
    if shell is None or fence is None or not shell_id.startswith(f"{fence.job_id}-"):
        await worker.close()
        return
    if not await run_in_threadpool(_holds, shared, shell.ticket.worker_id, fence):
        await worker.close()
        return
    await worker.accept()
    if shell.worker.done():
        await worker.close()
        return
    shell.worker.set_result(worker)
    while not await _over(shell):
        if not await run_in_threadpool(_may_go_on, shared, shell.ticket, fence):
            shell.withdrawn = True
            break
    await close(worker)


async def _over(shell: Shell) -> bool:
    """Wait until a shell is over, or until it is time to look whether it may go on."""
    try:
        async with asyncio.timeout(relay.LOOK_EVERY_S):
            await shell.over.wait()
    except TimeoutError:
        return False
    return True


def _may_go_on(shared: Services, ticket: Ticket, fence: Fence) -> bool:
    try:
        lease_holds = _holds(shared, ticket.worker_id, fence)
        return lease_holds and may_still_enter(shared, ticket, fence.job_id)
    except DatabaseUnreachable:
        # A worker that cannot renew its lease ends the shell itself.
        return True


def _call(shared: Services, worker_id: int, shell_id: str) -> None:
    Shells(shared.database, actor="server").call(worker_id, shell_id)


def _holds(shared: Services, worker_id: int, fence: Fence) -> bool:
    return OwnLeases(shared.database, worker_id).lease(fence) is not None


def _fence(text: str) -> Fence | None:
    try:
        job_id, token, nonce = text.split(":")
        return Fence(int(job_id), int(token), UUID(nonce))
    except ValueError:
        return None


def issue_ticket(shared: Services, caller: Caller, job_id: int, worker_id: int, order: str) -> str:
    """Return a ticket for an order that its caller may give."""
    claims = {
        "jti": f"{job_id}-{secrets.token_hex(16)}",
        "exp": int(time.time()) + LASTS_S,
        "owner": caller.owner,
        "actor": caller.actor,
        "session": caller.session,
        "worker_id": worker_id,
        "order": digest(order),
    }
    return jwt.encode(claims, secret(shared, PURPOSE), ALGORITHM)


def read_ticket(shared: Services, header: str) -> Ticket | None:
    """Return the ticket in an Authorization header; None if it is not valid now."""
    try:
        claims = jwt.decode(header.removeprefix(BEARER), secret(shared, PURPOSE), [ALGORITHM])
    except jwt.InvalidTokenError:
        return None
    names = ("owner", "actor", "worker_id", "order", "session")
    return Ticket(id=claims["jti"], **{name: claims[name] for name in names if name in claims})


def use_ticket(shared: Services, ticket: Ticket) -> bool:
    """Use a ticket up, for all servers; False if it was used before."""
    return Nonces(shared.database).use(HOLDER, ticket.id)


def may_still_enter(shared: Services, ticket: Ticket, job_id: int) -> bool:
    """Tell whether a ticket's caller may, now still, enter the job."""
    kind, _, key_id = ticket.actor.partition(":")
    if kind != "key" and not ticket.session:
        # A token of another issuer says nothing about later.
        return True
    key = Keys(shared.database, actor="server").valid(ticket.session or key_id)
    if key is None:
        return False
    return shared.service(Caller.holding(key, ticket.actor)).may_enter(job_id)
