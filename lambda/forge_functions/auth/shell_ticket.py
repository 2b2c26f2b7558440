"""Tickets for shells: the right to run one command inside a job, for a minute."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import jwt

from forge_functions.auth.short_token import ALGORITHM, secret
from forge_functions.streams.relay import LASTS_S, Ticket, digest

if TYPE_CHECKING:
    from forge_functions.services import Services

PURPOSE = b"forge shell ticket"
BEARER = "Bearer "


def issue(shared: Services, owner: str, job_id: int, worker_id: int, order: str) -> str:
    """Return a ticket for an order that its caller may give."""
    claims = {
        "jti": f"{job_id}-{secrets.token_hex(16)}",
        "exp": int(time.time()) + LASTS_S,
        "owner": owner,
        "worker_id": worker_id,
        "order": digest(order),
    }
    return jwt.encode(claims, secret(shared, PURPOSE), ALGORITHM)


def read(shared: Services, header: str) -> Ticket | None:
    """Return the ticket in an Authorization header; None if it is not valid now."""
    try:
        said = jwt.decode(header.removeprefix(BEARER), secret(shared, PURPOSE), [ALGORITHM])
    except jwt.InvalidTokenError:
        return None
    return Ticket(said["jti"], said["owner"], said["worker_id"], said["order"])
