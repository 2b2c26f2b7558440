"""What a browser may do with a page: next to nothing that the page does not need."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Whatever else is a page, or would have been one.
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
    # Not `no-referrer`: a browser would then not say where a form comes from, either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class PageHeaders:
    """Has every answer that is not the API's say what a browser may do with it."""

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
    """Tell whether a path is the dashboard's, or would be if there were such a page."""
    return path.lstrip("/").partition("/")[0] not in NO_PAGES
