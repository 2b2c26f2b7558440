"""What all routes share: made once per process, connected at the first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from forge_schema.database import Database
from forge_schema.queue import Queue
from forge_schema.storage import Store, open_store
from forge_schema.storage.signed import Signer, open_signer

from forge_functions.auth.failures import Failures
from forge_functions.health import Health
from forge_functions.hub import Hub
from forge_functions.matching import Matching
from forge_functions.settings import ServerSettings

if TYPE_CHECKING:
    from forge_functions.auth.oidc import Issuer

# There are tens to hundreds; who asks for another shape with every job must not fill the memory.
MOST_LANES = 10_000


class Services:
    """The database and the store behind the routes.

    `stopping` is set when the process is to end: whatever waits or streams ends then.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.failures = Failures()
        self.stopping = Event()
        self.hub = Hub(settings.database_url, self.stopping)
        self.matching = Matching()
        # Told how many ends a worker brought and how many jobs it got.
        self.exchanged: Callable[[int, int], None] = lambda _ended, _granted: None
        self._opening = Lock()
        self._opened: Database | None = None
        self._lane_ids: dict[str, int] = {}

    @property
    def database(self) -> Database:
        """The open database.

        Raises:
            DatabaseUnreachable: it does not answer; the next use tries again.
            NotMigrated: it has no tables of Forge's.
        """
        with self._opening:
            if self._opened is None:
                settings = self.settings
                self._opened = Database(
                    settings.database_url,
                    size=settings.database_connections,
                    prepare=settings.prepare,
                ).open()
            return self._opened

    @cached_property
    def store(self) -> Store:
        """The store.

        Raises:
            StoreUrlInvalid: its URL names no store.
        """
        return open_store(self.settings.store_url)

    def signer(self, request_base: str) -> Signer:
        """Return what signs URLs of objects for a caller who reached us by `request_base`.

        Raises:
            StoreUrlInvalid: the store's URL names no store.
        """
        settings = self.settings
        return open_signer(
            settings.store_url,
            secret=settings.server_secret.get_secret_value().encode(),
            base_url=settings.public_url or request_base,
            lasts_s=settings.url_lasts_s,
        )

    @cached_property
    def health(self) -> Health:
        """What stands and what does not."""
        return Health(self)

    @cached_property
    def issuer(self) -> Issuer:
        """Whose tokens are taken besides our own."""
        # Its libraries take a tenth of a second, and the workers' paths do without.
        from forge_functions.auth.oidc import Issuer  # noqa: PLC0415

        return Issuer(self.settings)

    def queue(self, actor: str) -> Queue:
        """Return the queue as one actor speaks to it."""
        if len(self._lane_ids) > MOST_LANES:
            self._lane_ids.clear()
        ttl = self.settings.ttl
        return Queue(self.database, actor=actor, ttl=ttl, lane_ids=self._lane_ids)

    def close(self) -> None:
        self.stopping.set()
        self.hub.join()
        if "health" in self.__dict__:
            self.health.close()
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def services(request: Request) -> Services:
    """Return what the routes share; a FastAPI dependency."""
    found: Services = request.app.state.services
    return found


Shared = Annotated[Services, Depends(services)]
