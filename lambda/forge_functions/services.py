"""What all routes share: made once per process, connected at the first use."""

from functools import cached_property
from threading import Lock

from fastapi import Request
from forge_schema.database import Database
from forge_schema.queue import Queue
from forge_schema.storage import Store, open_store
from forge_schema.storage.signed import Signer, open_signer

from forge_functions.settings import ServerSettings


class Services:
    """The database and the store behind the routes."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._opening = Lock()
        self._opened: Database | None = None

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

    def queue(self, actor: str) -> Queue:
        """Return the queue as one actor speaks to it."""
        return Queue(self.database, actor=actor, ttl=self.settings.ttl)

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


def services(request: Request) -> Services:
    """Return what the routes share; a FastAPI dependency."""
    found: Services = request.app.state.services
    return found
