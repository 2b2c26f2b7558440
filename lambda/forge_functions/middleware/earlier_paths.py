"""The paths of earlier versions, `/api/…`, lead to those of this one, `/api/v1/…`."""

from starlette.types import ASGIApp, Receive, Scope, Send

EARLIER, CURRENT = "/api/", "/api/v1/"
SENT = "forge.sent_path"


class EarlierPaths:
    """Plain ASGI, for WebSockets too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(EARLIER) and not path.startswith(CURRENT):
            # Not in a copy: the meter looks for the route in its own.
            scope[SENT] = path
            scope["path"] = CURRENT + path.removeprefix(EARLIER)
        await self._app(scope, receive, send)


def sent_path(scope: Scope) -> str:
    """Return the path that the caller sent, and may have signed."""
    return str(scope.get(SENT, scope["path"]))
