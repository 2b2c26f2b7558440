"""Security headers that deny pages everything they do not need."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Everything else is a page, or would be if it existed.
NO_PAGES = frozenset({"api", "health", "metrics", "openapi.json"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`, which would also remove the origin of forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class PageHeaders:
    """Adds security headers to every answer except the API's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        pages = scope["type"] == "http" and is_page(scope["path"])
        await self._app(scope, receive, sending if pages else send)


def is_page(path: str) -> bool:
    """Tell whether a path belongs to the dashboard, even if there is no such page."""
    return path.lstrip("/").partition("/")[0] not in NO_PAGES
