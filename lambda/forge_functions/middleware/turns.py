"""Turns: strangers of one address are answered only so often, and wait for it.

A request costs the event loop a millisecond or more, also when it is refused, and everybody waits
for that loop. So each connection and each request takes a turn of its address, and those of known
callers give it back at once. Whoever comes too often waits without costing anything, and whoever
would wait too long is refused.

A trusted proxy has no limit; the addresses that it forwards have.
"""

import asyncio
import os
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any, cast
from uuid import uuid4

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from forge_functions.errors import forge_error
from forge_functions.middleware.admission import Buckets, refused
from forge_functions.middleware.requests import client_of, is_known

PER_S, AT_ONCE, PATIENCE_S = 50.0, 200, 10.0
# A connection and a request.
BOTH = 2
# An IPv6 user has at least this network.
NETWORK_BITS = 64
MANY = "too many requests come from this address"
WAIT = "wait; send a valid key or token"
# As uvicorn reads it.
PROXIES = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")


class AddressTurns:
    """The turns of each address."""

    def __init__(self, proxies: str = PROXIES) -> None:
        self.buckets = Buckets(PER_S, AT_ONCE, PATIENCE_S)
        self._everybody = proxies == "*"
        self._proxies = ProxyHeadersMiddleware(cast("Any", None), proxies).trusted_hosts

    def connects(self, address: str) -> float:
        """Count a connection; return the seconds until its turn, too many for `PATIENCE_S`."""
        return 0.0 if address in self._proxies else self.buckets.take(network_of(address))

    def asks(self, address: str) -> float:
        """Count a request; return as for a connection."""
        return 0.0 if self._free(address) else self.buckets.take(network_of(address))

    def known(self, address: str) -> None:
        """Do not count a request after all, nor a connection: they are a known caller's."""
        if not self._free(address):
            self.buckets.give_back(network_of(address), BOTH)

    def refused(self, address: str) -> None:
        """Count a request of a known caller who goes on after a refusal."""
        if not self._free(address):
            self.buckets.owe(network_of(address), BOTH)

    def _free(self, address: str) -> bool:
        # If everybody is trusted to forward an address, what they forward still counts.
        return not self._everybody and address in self._proxies


TURNS = AddressTurns()


class TakingTurns:
    """Plain ASGI middleware, around everything else."""

    def __init__(self, app: ASGIApp, turns: AddressTurns = TURNS) -> None:
        self._app, self._turns = app, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        address = client_of(scope)
        wait_s = self._turns.asks(address)
        if wait_s > PATIENCE_S:
            await _refuse(scope, receive, send, wait_s)
            return
        if wait_s:
            await asyncio.sleep(wait_s)

        async def sending(message: Message) -> None:
            if message.get("status") == HTTPStatus.TOO_MANY_REQUESTS and is_known(scope):
                self._turns.refused(address)
            await send(message)

        scope["state"]["turns"] = self._turns
        await self._app(scope, receive, sending)


def network_of(address: str) -> str:
    """Return an address, or the network that is a user's own."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(int(parsed) >> (128 - NETWORK_BITS))


async def _refuse(scope: Scope, receive: Receive, send: Send, wait_s: float) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    scope["state"]["request_id"] = uuid4().hex
    error = refused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", MANY, int(wait_s) + 1, WAIT)
    response = forge_error(Request(scope), error)
    response.headers["Connection"] = "close"
    await response(scope, receive, send)
