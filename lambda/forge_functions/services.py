"""Services shared by all routes: created once per process, connected at the first use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from forge_schema.database.connections import STATEMENT_S
from forge_schema.database.pool import Database
from forge_schema.made_once import made_once
from forge_schema.model.stored import in_chunks
from forge_schema.queue.inputs import Uploads
from forge_schema.queue.queue import Queue
from forge_schema.queue.submission import LaneIds
from forge_schema.service.caller import Caller
from forge_schema.storage import Store, open_store
from forge_schema.storage.signed import ServerSigner, Signer, open_signer, signs_content_hash

from forge_functions.health import Health
from forge_functions.middleware.admission import Rate
from forge_functions.middleware.bulkheads import RequestPart, part
from forge_functions.middleware.failures import Failures
from forge_functions.settings import ServerSettings
from forge_functions.streams.group_finishing import GroupFinishing
from forge_functions.streams.hub import Hub
from forge_functions.streams.matching import Matching
from forge_functions.streams.relay import Relay

if TYPE_CHECKING:
    from forge_schema.service.local import LocalService

    from forge_functions.issued_tokens import Pods
    from forge_functions.oidc import Issuer

# There are usually tens to hundreds; new shapes with every job must not fill the memory.
MOST_LANES = 10_000
# Of one worker: it registers when it starts, and after the server lost sight of it.
REGISTRATIONS_PER_S, REGISTRATIONS_AT_ONCE = 0.1, 10


class Services:
    """The database and the store behind the routes.

    `stopping` is set when the process stops, which ends all waits and streams.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.failures = Failures()
        # Each one is a row of the trail, and takes a while.
        limited = settings.caller_rate > 0
        registrations = Rate(REGISTRATIONS_PER_S, at_once=REGISTRATIONS_AT_ONCE)
        self.registrations = registrations if limited else None
        # Nobody else runs while one is parsed, and each takes much memory.
        self.large_body = asyncio.Lock()
        # Pieces of objects that are read at a time.
        self.object_pieces = asyncio.Semaphore(2)
        self.stopping = Event()
        self.matching = Matching()
        self.hub = Hub(
            settings.database_url,
            self.stopping,
            listens=settings.prepare and settings.long_poll_s > 0,
            new_work=self.matching.new_work,
        )
        self.relay = Relay()
        # The name under which workers on this machine reach the store's files.
        self.same_machine: str | None = None
        # Called with the number of ends that a worker reported and of jobs that it got.
        self.exchanged: Callable[[int, int], None] = lambda _ended, _granted: None
        # By a browser's session, where there are pages.
        self.visitor_of: Callable[[Request, Services], Caller | None] = lambda *_: None
        # One each: a failed connection of reports must not affect workers.
        self._opening = {part: Lock() for part in RequestPart}
        self._opened: dict[RequestPart, Database] = {}
        self._lane_ids: LaneIds = {}

    @property
    def database(self) -> Database:
        """The open database, with the connections of the request's part.

        Raises:
            DatabaseUnreachable: it does not answer; the next use tries again.
            NotMigrated: it does not have Forge's tables.
        """
        sizes = {
            RequestPart.READS: self.settings.read_connections,
            RequestPart.REPORTS: self.settings.report_connections,
        }
        size = sizes.get(part.get(), 0)
        chosen = part.get() if size else RequestPart.PROTOCOL
        with self._opening[chosen]:
            if chosen not in self._opened:
                size = size or self.settings.database_connections
                limit_s = (
                    self.settings.report_limit_s if chosen is RequestPart.REPORTS else STATEMENT_S
                )
                self._opened[chosen] = self._open(size, limit_s)
            return self._opened[chosen]

    def _open(self, size: int, statement_s: float) -> Database:
        url, prepare = self.settings.database_url, self.settings.prepare
        return Database(url, size=size, prepare=prepare, statement_s=statement_s).open()

    @made_once
    def store(self) -> Store:
        """The store; `StoreUrlInvalid` if its URL does not name a store."""
        return open_store(self.settings.store_url)

    def url(self, request_base: str) -> str:
        """Return this server's URL for callers who reached it at `request_base`."""
        return (self.settings.public_url or request_base).rstrip("/")

    def signer(self, request_base: str) -> Signer:
        """Return a signer of object URLs for a caller who reached the server at `request_base`.

        Raises:
            StoreUrlInvalid: the store's URL does not name a store.
        """
        settings = self.settings
        return open_signer(
            settings.store_url,
            secret=settings.server_secret.get_secret_value().encode(),
            base_url=self.url(request_base),
            lasts_s=settings.url_lasts_s,
            content_hash=signs_content_hash(settings.store_url),
            same_machine=self.same_machine,
        )

    def own_signer(self, request_base: str) -> ServerSigner:
        """Return a signer of URLs that lead to this server."""
        settings = self.settings
        return ServerSigner(
            settings.server_secret.get_secret_value().encode(),
            base_url=self.url(request_base),
            lasts_s=settings.url_lasts_s,
            same_machine=self.same_machine,
        )

    def reading(self, request_base: str) -> Callable[[str], str]:
        """Return a function that signs a URL to read an object by its key.

        That of a file in chunks leads to this server, which puts it together, unless calls are
        billed by time: then it leads to the list of its chunks.
        """
        signer, own = self.signer(request_base), self.own_signer(request_base)
        puts_together = self.settings.long_poll_s > 0
        return lambda key: (own if puts_together and in_chunks(key) else signer).get(key).url

    @made_once
    def health(self) -> Health:
        """The health checks."""
        return Health(lambda: self.database, lambda: self.store, ttl=self.settings.ttl)

    @made_once
    def issuer(self) -> Issuer:
        """The issuer whose tokens are accepted besides our own."""
        # Importing it takes a tenth of a second, and workers' paths do not need it.
        from forge_functions.oidc import Issuer  # noqa: PLC0415

        return Issuer(self.settings)

    @made_once
    def pods(self) -> Pods:
        """The pods that may enrol as workers."""
        from forge_functions.issued_tokens import Pods  # noqa: PLC0415  as above

        return Pods(self.settings)

    def queue(self, actor: str) -> Queue:
        """Return the queue for one worker."""
        return Queue(self.database, actor=actor, ttl=self.settings.ttl)

    @made_once
    def finishing(self) -> GroupFinishing:
        """The line for ends that are reported without a claim."""
        return GroupFinishing(lambda ends: self.queue("server").finish(ends))

    def note_upload(self, owner: str, sha256: str) -> None:
        """Record whose an object is that was uploaded to this server's own store."""
        Uploads(self.database).add(owner, sha256)

    def service(self, caller: Caller) -> LocalService:
        """Return the verbs of a user."""
        # It imports all that users read, and the workers' paths do without.
        from forge_schema.service.local import LocalService  # noqa: PLC0415

        if len(self._lane_ids) > MOST_LANES:
            self._lane_ids.clear()
        return LocalService(
            caller, lambda: self.database, lambda: self.store, lane_ids=self._lane_ids
        )

    def close(self) -> None:
        self.stopping.set()
        self.hub.join()
        if "health" in self.__dict__:
            self.health.close()
        with ExitStack() as held:
            for opening in self._opening.values():
                held.enter_context(opening)
            for database in self._opened.values():
                database.close()
            self._opened.clear()


# Not a plain function, for which FastAPI would use a thread.
async def services(request: Request) -> Services:
    """Return the shared services. A FastAPI dependency."""
    shared: Services = request.app.state.services
    return shared


Shared = Annotated[Services, Depends(services)]
