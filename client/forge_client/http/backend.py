"""The backend that reaches everything through a server's HTTP functions.

What only some commands need is imported by the methods that use it: the others start sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from forge_schema.made_once import made_once
from forge_schema.model.job import JobStatus, possible_job
from forge_schema.model.reading import FILES, id_of
from forge_schema.model.stored import (
    PAGE,
    Artifact,
    ArtifactChunk,
    BundleOffer,
    LogChunk,
    SignedUrl,
    in_chunks,
)

from forge_client.backend import Backend
from forge_client.errors import as_client_error
from forge_client.http import Server
from forge_client.http.remote import ServerVerbs
from forge_client.http.transport import Transport, retried
from forge_client.plain.backend import BUNDLES, with_keys
from forge_client.plain.place import SLOWEST_S
from forge_client.uploads import Bundle, ImageTar, Progress

if TYPE_CHECKING:
    from forge_schema.model.stored import SegmentUpload
    from forge_schema.service.admin import Admin
    from forge_schema.service.notifications import Notifying
    from forge_schema.shell import ShellTicket

    from forge_client.backend import Check
    from forge_client.http.objects import ObjectTransfers, Offer
    from forge_client.http.remote import HttpFindings

T = TypeVar("T")
IMAGES = "/api/v1/images"
UPLOADS = 3
# Zstandard's bound for incompressible data, plus a header.
OVERHEAD = 1 << 16
# Of one object of a job's code.
LARGEST = 5 << 30


class HttpBackend(Backend):
    """Asks a server; connects when it is first asked.

    Args:
        owner: whose templates are meant; None is the key's owner.

    Raises:
        ClientError: the certificates or the signing key cannot be used.
    """

    slowest_s = SLOWEST_S

    def __init__(self, server: Server, *, owner: str | None = None) -> None:
        self._transport = Transport(server)
        self._owner = owner
        self._verbs = ServerVerbs(self._transport, owner)
        self.remote = self._verbs

    def __exit__(self, *exc: object) -> None:
        self._transport.close()

    @made_once
    def _objects(self) -> ObjectTransfers:
        from forge_client.http.objects import ObjectTransfers

        return ObjectTransfers(self._transport.bare)

    @made_once
    def admin(self) -> Admin:
        from forge_schema.service.admin import Admin

        return Admin.of(ServerVerbs(self._transport, owner=None))

    @made_once
    def findings(self) -> HttpFindings:
        from forge_client.http.remote import HttpFindings

        return HttpFindings(self._transport, owner=self._owner)

    @made_once
    def notifications(self) -> Notifying:
        from forge_schema.service.notifications import Notifying

        return Notifying.of(self._verbs)

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        return super().submit(with_keys(specs)) if specs else []

    def has_bundle(self, bundle: Bundle) -> bool:
        return self._offer(bundle, BUNDLES).stored

    def upload_bundle(self, bundle: Bundle, progress: Progress | None = None) -> None:
        self._upload(bundle, BUNDLES, progress)

    def missing_bytes(self, bundle: Bundle) -> int:
        return self._segments_offer(bundle).missing_bytes

    def upload_segments(self, bundle: Bundle, progress: Progress | None = None) -> None:
        from forge_client.downloads import at_once
        from forge_client.http.objects import UrlRefused

        tries, left = 0, -1
        while not (offer := self._segments_offer(bundle)).stored and tries < UPLOADS:
            tries = tries + 1 if offer.missing_bytes == left else 1
            left = offer.missing_bytes
            try:
                at_once(partial(self._put_segment, bundle, progress or _ignore), offer.uploads)
            except UrlRefused:
                # It may have expired while others were sent.
                if tries == UPLOADS:
                    raise

    def _put_segment(self, bundle: Bundle, progress: Progress, offer: SegmentUpload) -> None:
        path = bundle.path / offer.sha256
        act = partial(self._objects.put, offer, path, progress)
        retried(act, patience_s=self._transport.patience_s)

    def _segments_offer(self, bundle: Bundle) -> BundleOffer:
        from forge_schema.model.stored import SegmentList

        body = SegmentList(segments=list(bundle.segments)).model_dump()
        answer = self._transport.send("POST", f"{BUNDLES}/segments", body, again=True)
        return self._transport.record(BundleOffer, answer)

    def has_image(self, image: ImageTar) -> bool:
        return self._offer(image, IMAGES).stored

    def upload_image(self, image: ImageTar, progress: Progress | None = None) -> None:
        self._upload(image, IMAGES, progress)

    def _upload(self, brought: Bundle | ImageTar, path: str, progress: Progress | None) -> None:
        def once() -> None:
            # Asked again after each try: another owner may just have stored the same object.
            for _ in range(UPLOADS):
                offer = self._offer(brought, path)
                if offer.stored:
                    return
                self._objects.put(offer, brought.path, progress or _ignore)

        retried(once, patience_s=self._transport.patience_s)

    def _offer(self, brought: Bundle | ImageTar, path: str) -> Offer:
        from forge_client.http.objects import Offer

        wanted = {"digest": brought.digest, "bytes": brought.size}
        answer = self._transport.send("POST", path, wanted, again=True)
        return self._transport.record(Offer, answer)

    def job_id(self, handle: str, *, owner: str | None = None) -> int:
        known = id_of(handle)
        return super().job_id(handle, owner=owner) if known is None else known

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobStatus]:
        statuses_by_id: dict[int, JobStatus] = {}
        wanted = list(job_ids)
        for at in range(0, len(wanted), PAGE):
            statuses_by_id |= super().statuses(wanted[at : at + PAGE])
        return statuses_by_id

    def enter(self, job_id: int, command: Sequence[str], *, rank: int = 0) -> int:
        """Run a command inside a running job, and return its exit code."""
        from forge_client.http import shells

        terminal = shells.terminal()
        size = None if terminal is None else terminal.model_dump()
        ticket = self._ticket(job_id, {"command": list(command), "rank": rank, "terminal": size})
        return shells.run(self._transport, ticket, interactive=terminal is not None)

    def tunnel(
        self, job_id: int, ports: Sequence[int], pin: Callable[[str], None], *, rank: int = 0
    ) -> None:
        """Pass this process's input and output to an SSH server inside a running job."""
        from forge_client.http import shells

        what = {"ports": list(ports)} if ports else {"ssh": True}
        shells.run(self._transport, self._ticket(job_id, {**what, "rank": rank}), pin=pin)

    def _ticket(self, job_id: int, body: dict[str, object]) -> ShellTicket:
        from forge_schema.shell import ShellTicket

        answer = self._transport.send("POST", f"{_job_path(job_id)}/shells", body, again=True)
        return self._transport.record(ShellTicket, answer)

    @property
    def environment(self) -> dict[str, str]:
        server = self._transport.server
        given = {
            "FORGE_URL": server.url,
            "FORGE_API_KEY": server.key,
            "FORGE_SIGNING_KEY_FILE": server.signing_key and str(server.signing_key.absolute()),
            "FORGE_TLS_CA": server.ca and str(server.ca.absolute()),
            "FORGE_INSECURE_SKIP_VERIFY": None if server.verify else "true",
        }
        return {name: value for name, value in given.items() if value}

    def log_bytes(self, chunk: LogChunk) -> bytes:
        from forge_client.plain.unpacking import unpacked

        def once(url: str) -> bytes:
            stored = bytearray()
            self._objects.get(url, chunk.bytes + OVERHEAD, stored.extend, _ignore)
            return bytes(stored)

        return unpacked(chunk, self._by_url(chunk.url, lambda: self._chunk_url(chunk), once))

    def artifacts(
        self, job_id: int, *, after: str | None = None, count: int | None = None
    ) -> list[Artifact]:
        files: list[Artifact] = []
        while page := super().artifacts(job_id, after=after, count=count):
            files += page
            after = page[-1].path
            if len(page) < FILES:
                break
        return files

    def fetch_code(self, job_id: int, digest: str, path: Path) -> None:
        from forge_client.downloads import verified_code

        address = f"{_job_path(job_id)}/code/{digest}"

        def fresh() -> str:
            return self._transport.record(SignedUrl, self._transport.get(address)).url

        def once(url: str) -> None:
            with part.open("wb") as file:
                self._objects.get(url, LARGEST, file.write, _ignore)

        with verified_code(path, digest) as part:
            self._by_url(fresh(), fresh, once)

    def download(self, artifact: Artifact, path: Path, progress: Progress | None = None) -> None:
        from forge_client.downloads import verified_file

        with verified_file(path, artifact) as partial:
            if in_chunks(artifact.key):
                self._put_together(artifact, partial, progress or _ignore)
                return

            def once(url: str) -> None:
                with partial.open("wb") as file:
                    self._objects.get(url, artifact.bytes, file.write, progress or _ignore)

            self._by_url(artifact.url, lambda: self._artifact_url(artifact), once)

    def _put_together(self, artifact: Artifact, path: Path, progress: Progress) -> None:
        from forge_client.downloads import put_together

        def page(after: int) -> list[ArtifactChunk]:
            return self.artifact_chunks(artifact.job_id, artifact.path, after=after)

        def fetch(chunk: ArtifactChunk, write: Callable[[bytes], object]) -> None:
            def once(url: str) -> None:
                content = bytearray()
                self._objects.get(url, chunk.bytes, content.extend, progress)
                write(bytes(content))

            self._by_url(chunk.url, lambda: page(chunk.offset - 1)[0].url, once)

        put_together(path, artifact, page, fetch)

    def _by_url(self, url: str, fresh: Callable[[], str], act: Callable[[str], T]) -> T:
        """Act on a URL, or on a fresh one if it has expired."""
        from forge_client.http.objects import UrlRefused

        try:
            return retried(lambda: act(url), patience_s=self._transport.patience_s)
        except UrlRefused:
            url = fresh()
            return retried(lambda: act(url), patience_s=self._transport.patience_s)

    def _chunk_url(self, chunk: LogChunk) -> str:
        before = (chunk.token, chunk.rank, chunk.number - 1)
        chunks = self.log_chunks(chunk.job_id, after=before)
        return next((fresh.url for fresh in chunks if fresh.key == chunk.key), chunk.url)

    def _artifact_url(self, artifact: Artifact) -> str:
        artifacts = self.artifacts(artifact.job_id)
        return next((fresh.url for fresh in artifacts if fresh.key == artifact.key), artifact.url)

    def health(self) -> list[Check]:
        from forge_client.http.health import checks

        return checks(self._transport, self.me, self.workers)


def _ignore(_count: int) -> None:
    """Show nothing."""


def _job_path(job_id: int) -> str:
    with as_client_error():
        return f"/api/v1/queue/jobs/{possible_job(job_id)}"
