"""The backend that accesses the database and the store directly, without a server.

What only some commands need is imported by the methods that use it: the others start sooner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from forge_schema.database.pool import Database
from forge_schema.made_once import made_once
from forge_schema.model.states import Role
from forge_schema.model.stored import Artifact, ArtifactChunk, LogChunk, in_chunks
from forge_schema.service.caller import Caller
from forge_schema.service.local import LocalService
from forge_schema.storage import Store, keys, open_store

from forge_client.backend import Backend
from forge_client.direct import checked_url, raising_client_errors, translated
from forge_client.downloads import at_once, put_together, verified_code, verified_file, write_whole
from forge_client.errors import ClientError
from forge_client.plain.place import SLOWEST_UP_S
from forge_client.plain.unpacking import unpacked
from forge_client.settings import QueueConnection
from forge_client.uploads import Bundle, ImageTar, Progress

if TYPE_CHECKING:
    from forge_schema.model.stored import Segment
    from forge_schema.service.findings import Findings

    from forge_client.backend import Check
    from forge_client.direct.administration import DirectAdmin, DirectNotifications

# What it would print about an outage, commands say themselves.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


@raising_client_errors
class DirectBackend(LocalService, Backend):
    """The service in this process, plus the transfers that otherwise use a server's URLs.

    It connects on first use.
    """

    slowest_s = SLOWEST_UP_S

    def __init__(self, connection: QueueConnection, *, owner: str) -> None:
        # Anybody with access to the database may do everything there.
        caller = Caller(owner, Role.ADMIN, f"user:{owner}")
        super().__init__(caller, self._connected, lambda: self._store)
        self._connection = connection
        self._opening = Lock()
        self._opened: Database | None = None

    def __exit__(self, *exc: object) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    @made_once
    def admin(self) -> DirectAdmin:
        """The admin operations."""
        from forge_client.direct.administration import DirectAdmin

        admin = DirectAdmin(self.caller, self._connected)
        admin.server_url = self._connection.up_url
        return admin

    @made_once
    def findings(self) -> Findings:
        """The results, tests and metrics of jobs."""
        from forge_schema.service.findings import Findings

        return raising_client_errors(Findings)(self.caller, self._connected)

    @made_once
    def notifications(self) -> DirectNotifications:
        """The verbs about notifications."""
        from forge_client.direct.administration import DirectNotifications

        own = DirectNotifications(self.caller, self._connected)
        own.server_url = self._connection.up_url
        return own

    def check(self, specs: Sequence[Mapping[str, Any]]) -> None:
        """Reject jobs that `submit` would reject, or that need a store when none is configured."""
        super().check(specs)
        self._connection.store()

    def has_bundle(self, bundle: Bundle) -> bool:
        return self.uploads.is_stored(keys.bundle(bundle.digest), bundle.digest, size=bundle.size)

    def upload_bundle(self, bundle: Bundle, progress: Progress | None = None) -> None:
        self._upload(keys.bundle(bundle.digest), bundle, progress)

    def missing_bytes(self, bundle: Bundle) -> int:
        from forge_schema.model.stored import SegmentList

        missing = self.uploads.missing_segments(SegmentList(segments=list(bundle.segments)))
        return sum(segment.bytes for segment in missing)

    def upload_segments(self, bundle: Bundle, progress: Progress | None = None) -> None:
        from forge_schema.model.stored import SegmentList

        def put(segment: Segment) -> None:
            # As one request: nothing is left behind if this process dies.
            self._store.put(
                keys.segment(segment.sha256), (bundle.path / segment.sha256).read_bytes()
            )
            if progress:
                progress(segment.bytes)

        listed = SegmentList(segments=list(bundle.segments))
        at_once(put, self.uploads.missing_segments(listed))
        self.uploads.missing_segments(listed)

    def has_image(self, image: ImageTar) -> bool:
        return self.uploads.is_stored(keys.image(image.digest), image.digest, size=image.size)

    def upload_image(self, image: ImageTar, progress: Progress | None = None) -> None:
        self._upload(keys.image(image.digest), image, progress)

    def _upload(self, key: str, brought: Bundle | ImageTar, progress: Progress | None) -> None:
        # It replaces one that is damaged; whatever else is there has the same bytes.
        self._store.put_file(key, brought.path, progress=progress)

    def note_entry(self, job_id: int, program: str) -> None:
        """Record that somebody runs a command inside a job."""
        from forge_schema.read.audit import Audit

        self._visible(job_id)
        Audit(self._database).note(
            self.caller.actor, "entered", {"program": program}, job_id=job_id
        )

    @property
    def environment(self) -> dict[str, str]:
        given = {
            "FORGE_DATABASE_URL": self._connection.database_url,
            "FORGE_STORE_URL": self._connection.store_url,
            "FORGE_OWNER": self.caller.owner,
        }
        return {name: value for name, value in given.items() if value}

    def log_bytes(self, chunk: LogChunk) -> bytes:
        return unpacked(chunk, self._store.get(chunk.key))

    def fetch_code(self, job_id: int, digest: str, path: Path) -> None:
        with verified_code(path, digest) as partial:
            self._store.get_file(self.code_key(job_id, digest), partial)

    def download(self, artifact: Artifact, path: Path, progress: Progress | None = None) -> None:
        with verified_file(path, artifact) as partial:
            if in_chunks(artifact.key):
                self._put_together(artifact, partial, progress)
            else:
                write_whole(partial, artifact, self._store.stream(artifact.key), progress)

    def _put_together(self, artifact: Artifact, path: Path, progress: Progress | None) -> None:
        job_id = int(artifact.key.split("/")[1])

        def page(after: int) -> list[ArtifactChunk]:
            return self.artifact_chunks(job_id, artifact.path, after=after)

        def fetch(chunk: ArtifactChunk, write: Callable[[bytes], object]) -> None:
            for piece in self._store.stream(chunk.key):
                write(piece)
            if progress:
                progress(chunk.bytes)

        put_together(path, artifact, page, fetch)

    def health(self) -> list[Check]:
        from forge_client.direct.checks import checks

        return checks(self._connection, self.workers, self._connected)

    def _connected(self) -> Database:
        with self._opening:
            if self._opened is None:
                self._opened = self._opened_anew()
            return self._opened

    def _opened_anew(self) -> Database:
        try:
            with translated():
                return Database(checked_url(self._connection.database_url)).open()
        except ClientError as error:
            if error.code == "database_unreachable" and self._connection.up_dir:
                folder = self._connection.up_dir
                error.hint = f"if the `forge up` of {folder} was killed, start it again"
            raise

    @made_once
    def _store(self) -> Store:
        return open_store(self._connection.store())
