"""The real app under uvicorn, and an admin who asks it for pages and endpoints."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import structlog
from forge_functions.server import whole_app
from forge_schema.access.api_keys import Keys
from forge_schema.database.pool import Database
from forge_schema.model.states import Role
from support.http.server import server_settings, serving

NOTHING = "/api/v1/nothing"


@dataclass
class Site:
    """Pages by a session, endpoints by the key itself."""

    pages: httpx.Client
    endpoints: httpx.Client

    def get(self, path: str) -> None:
        """Fetch a path whole.

        Raises:
            httpx.HTTPStatusError: it was refused.
        """
        client = self.endpoints if path.startswith("/api/") else self.pages
        client.get(path).raise_for_status()

    def nothing(self) -> None:
        """Fetch what costs the same server a request and a statement, and no more."""
        self.endpoints.get(NOTHING).raise_for_status()


@contextmanager
def opened(url: str, store: str) -> Iterator[Site]:
    """Serve a database and log in."""
    # A line for each request would be measured too, and stand between those of the table.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    app = whole_app(server_settings(url, f"file://{store}"))
    shared = app.state.services

    def nothing() -> dict[str, int]:
        with shared.database.connection() as connection:
            connection.execute("SELECT 1 AS one")
        return {"one": 1}

    app.add_api_route(NOTHING, nothing)
    # A page's route would take any path for its own.
    app.router.routes.insert(0, app.router.routes.pop())
    with Database(url) as queue:
        _, key = Keys(queue, actor="user:root").create("root", Role.ADMIN)
    with serving(app) as base:
        pages = httpx.Client(base_url=base, timeout=120, headers={"Origin": base})
        endpoints = httpx.Client(
            base_url=base, timeout=120, headers={"Authorization": f"Bearer {key}"}
        )
        with pages, endpoints:
            pages.post("/login", data={"key": key})
            yield Site(pages, endpoints)
