"""Tickets for shells: the right to enter one job once, within a minute."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import jwt
from forge_schema.access.api_keys import Keys
from forge_schema.access.shells import Nonces
from forge_schema.service.caller import Caller

from forge_functions.auth.short_token import ALGORITHM, secret
from forge_functions.streams.relay import LASTS_S, Ticket, digest

if TYPE_CHECKING:
    from forge_functions.services import Services

PURPOSE = b"forge shell ticket"
BEARER = "Bearer "
# Whose nonces tickets are: no key and no worker has this name.
HOLDER = "shell ticket"


def issue(shared: Services, caller: Caller, job_id: int, worker_id: int, order: str) -> str:
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


def read(shared: Services, header: str) -> Ticket | None:
    """Return the ticket in an Authorization header; None if it is not valid now."""
    try:
        claims = jwt.decode(header.removeprefix(BEARER), secret(shared, PURPOSE), [ALGORITHM])
    except jwt.InvalidTokenError:
        return None
    names = ("owner", "actor", "worker_id", "order", "session")
    return Ticket(id=claims["jti"], **{name: claims[name] for name in names if name in claims})


def use(shared: Services, ticket: Ticket) -> bool:
    """Use a ticket up, for all servers; False if it was used before."""
    return Nonces(shared.database).use(HOLDER, ticket.id)


def holds(shared: Services, ticket: Ticket, job_id: int) -> bool:
    """Tell whether a ticket's caller may, now still, enter the job."""
    kind, _, key_id = ticket.actor.partition(":")
    if kind != "key" and not ticket.session:
        # A token of another issuer says nothing about later.
        return True
    key = Keys(shared.database, actor="server").valid(ticket.session or key_id)
    if key is None:
        return False
    return shared.service(Caller.holding(key, ticket.actor)).may_enter(job_id)
