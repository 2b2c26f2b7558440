"""The server for tests: the real app under uvicorn, in a thread, on its own port."""

from __future__ import annotations

import secrets
import socket
from contextlib import contextmanager
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any

import uvicorn
from forge_functions.server import whole_app
from forge_functions.settings import ServerSettings
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from starlette.types import ASGIApp


def server_settings(database_url: str, store_url: str, **changes: Any) -> ServerSettings:  # noqa: ANN401  fields of all types
    """Create settings for a server with its own secret."""
    given = {
        "server_secret": secrets.token_hex(32),
        "long_poll_s": 2.0,
        "caller_rate": 0,
        **changes,
    }
    return ServerSettings(database_url=database_url, store_url=store_url, **given)


def quick_app(settings: ServerSettings) -> FastAPI:
    """Return the app with every path; all apps of this process share their routes.

    FastAPI prepares each of them at its first request.
    """
    app = whole_app(settings)
    app.router.routes[:] = _first_app().router.routes
    return app


@cache
def _first_app() -> FastAPI:
    return whole_app(server_settings("postgresql://none", "file:///none"))


@contextmanager
def served(settings: ServerSettings) -> Iterator[str]:
    """Serve every path on loopback, and yield the server's URL."""
    with serving(quick_app(settings)) as url:
        yield url


@contextmanager
def serving(app: FastAPI, **options: Any) -> Iterator[str]:  # noqa: ANN401  uvicorn's own
    """Serve an app on loopback until the block ends, and yield its URL."""
    try:
        with listening(app, **options) as url:
            yield url
    finally:
        app.state.services.close()


@contextmanager
def listening(app: ASGIApp, **options: Any) -> Iterator[str]:  # noqa: ANN401  as above
    """Serve any ASGI app on loopback until the block ends, and yield its URL."""
    with socket.socket() as port:
        # asyncio sets this on the sockets that it creates; without it, an answer takes 40 ms more.
        port.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        port.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", **options))
        thread = Thread(target=server.run, kwargs={"sockets": [port]})
        thread.start()
        try:
            eventually(lambda: server.started)
            scheme = "https" if options.get("ssl_certfile") else "http"
            yield f"{scheme}://127.0.0.1:{port.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
