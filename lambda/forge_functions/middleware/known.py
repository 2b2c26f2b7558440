"""Note that a request is a known caller's, for a server that has strangers wait."""

from typing import Protocol

from starlette.requests import HTTPConnection
from starlette.types import Scope


class Turns(Protocol):
    """What is told of known callers; on Lambda there is none."""

    def known(self, address: str) -> None:
        """Do not count what a known caller sent from an address."""


def vouch(request: HTTPConnection) -> None:
    """Note that a request is a known caller's."""
    state = request.scope.get("state", {})
    turns: Turns | None = state.get("turns")
    if turns is not None and not is_known(request.scope):
        state["known"] = True
        turns.known(client_of(request.scope))


def is_known(scope: Scope) -> bool:
    """Tell whether somebody vouched for a request."""
    return bool(scope.get("state", {}).get("known"))


def client_of(scope: Scope) -> str:
    """Return the address of a request's client, as far as it is known."""
    return scope["client"][0] if scope.get("client") else ""
