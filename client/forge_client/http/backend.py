"""The backend that reaches everything through a server's HTTP functions.

What only some commands need is imported by the methods that use it: the others start sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

from forge_schema.job_filter import parse
from forge_schema.made_once import made_once
from forge_schema.model.job import (
    EXPLAINED,
    Attempt,
    Event,
    JobDetail,
    JobStatus,
    ListedJob,
    job_states,
    possible_job,
)
from forge_schema.model.stored import (
    BEGINNING,
    FILES,
    THE_END,
    Artifact,
    ArtifactChunk,
    Checkpoint,
    LogChunk,
    Place,
    SignedUrl,
    in_chunks,
)

from forge_client.backend import Progress
from forge_client.downloads import at_once, put_together, unpacked, verified_code, verified_file
from forge_client.errors import as_client_error
from forge_client.http.errors import rejected_job
from forge_client.http.job_path import JOBS, job_path
from forge_client.http.objects import Objects, Offer, UrlRefused
from forge_client.http.plans import HttpPlans
from forge_client.http.server import Server
from forge_client.http.transport import Transport, retried

if TYPE_CHECKING:
    from forge_schema.model.admin import Myself
    from forge_schema.model.bundles import BundleOffer, SegmentUpload
    from forge_schema.model.explanation import Explanation
    from forge_schema.model.overview import Overview
    from forge_schema.model.worker import WorkerInfo
    from forge_schema.shell import ShellTicket

    from forge_client.checks import Check
    from forge_client.http.admin import HttpAdmin
    from forge_client.http.findings import HttpFindings
    from forge_client.http.notifications import HttpNotifications
    from forge_client.project.bundle import Bundle
    from forge_client.project.image_tar import ImageTar

T = TypeVar("T")
PAGE = 1000
BUNDLES, IMAGES = "/api/v1/bundles", "/api/v1/images"
UPLOADS = 3
TIME_COLUMNS = ("at", "since")
# Zstandard's bound for incompressible data, plus a header.
OVERHEAD = 1 << 16
# Of one object of a job's code.
LARGEST = 5 << 30


class HttpBackend(HttpPlans):
    """Asks a server; connects when it is first asked.

    Args:
        server: where it is, and the API key.
        owner: whose job configs are meant; None is the key's owner.

    Raises:
        ClientError: the certificates or the signing key cannot be used.
    """

    # On Lambda every request costs money.
    slowest_s = 2.0

    def __init__(self, server: Server, *, owner: str | None = None) -> None:
        super().__init__(Transport(server), owner=owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._transport.close()

    @made_once
    def _objects(self) -> Objects:
        return Objects(self._transport.bare)

    @made_once
    def admin(self) -> HttpAdmin:
        from forge_client.http.admin import HttpAdmin

        return HttpAdmin(self._transport)

    @made_once
    def findings(self) -> HttpFindings:
        from forge_client.http.findings import HttpFindings

        return HttpFindings(self._transport, owner=self._owner)

    @made_once
    def notifications(self) -> HttpNotifications:
        from forge_client.http.notifications import HttpNotifications

        return HttpNotifications(self._transport, owner=self._owner)

    def me(self) -> Myself:
        from forge_schema.model.admin import Myself

        return self._transport.record(Myself, self._transport.get("/api/v1/me"))

    def check(self, specs: Sequence[Mapping[str, Any]]) -> None:
        with rejected_job():
            self._transport.send("POST", "/api/v1/queue/check", {"jobs": list(specs)}, again=True)

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        if not specs:
            return []
        # Made before the first try, so that a lost answer cannot duplicate jobs.
        stem = uuid4().hex
        jobs = [{"idempotency_key": f"{stem}:{n}", **spec} for n, spec in enumerate(specs)]
        with rejected_job():
            answer = self._transport.send(
                "POST", "/api/v1/queue/submit", {"jobs": jobs}, again=True
            )
        ids: list[int] = self._transport.field(answer, "job_ids")
        return ids

    def has_bundle(self, bundle: Bundle) -> bool:
        return self._offer(bundle, BUNDLES).stored

    def upload_bundle(self, bundle: Bundle, progress: Progress | None = None) -> None:
        self._upload(bundle, BUNDLES, progress)

    def missing_bytes(self, bundle: Bundle) -> int:
        return self._segments_offer(bundle).missing_bytes

    def upload_segments(self, bundle: Bundle, progress: Progress | None = None) -> None:
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
        from forge_schema.model.bundles import BundleOffer, SegmentList

        said = SegmentList(segments=list(bundle.segments)).model_dump()
        answer = self._transport.send("POST", f"{BUNDLES}/segments", said, again=True)
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
        wanted = {"digest": brought.digest, "bytes": brought.size}
        answer = self._transport.send("POST", path, wanted, again=True)
        return self._transport.record(Offer, answer)

    def job_id(self, handle: str) -> int:
        if handle.isascii() and handle.isdecimal():
            return int(handle)
        answer = self._transport.get("/api/v1/queue/job-id", handle=handle, owner=self._owner)
        found: int = self._transport.field(answer, "job_id")
        return found

    def job(self, job_id: int) -> JobDetail:
        return self._transport.record(JobDetail, self._transport.get(job_path(job_id)))

    def jobs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        states: Sequence[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[ListedJob]:
        with as_client_error():
            wanted = parse(query)
            chosen = None if states is None else job_states(states)
        q = str(wanted.seen_by(self._owner) if self._owner else wanted) or None
        answer = self._transport.get(
            JOBS, q=q, owner=owner, state=chosen, before=before, count=count
        )
        return self._transport.records(ListedJob, answer)

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobStatus]:
        with as_client_error():
            wanted = [possible_job(job_id) for job_id in job_ids]
        pages = (wanted[at : at + PAGE] for at in range(0, len(wanted), PAGE))
        return {row.job_id: row for page in pages for row in self._statuses(page)}

    def _statuses(self, job_ids: Sequence[int]) -> list[JobStatus]:
        body = {"job_ids": job_ids}
        answer = self._transport.send("POST", "/api/v1/queue/statuses", body, again=True)
        return self._transport.records(JobStatus, answer)

    def cancel(self, job_id: int, *, reason: str | None = None) -> str:
        path, body = f"{job_path(job_id)}/cancel", {"reason": reason} if reason else None
        answer = self._transport.send("POST", path, body, again=True)
        state: str = self._transport.field(answer, "state")
        return state

    def cancel_all(self, job_ids: Sequence[int]) -> dict[str, int]:
        answer = self._transport.send(
            "POST", "/api/v1/queue/cancel", {"job_ids": job_ids}, again=True
        )
        names = ("cancelled", "running", "over", "absent")
        return {name: self._transport.field(answer, name) for name in names}

    # Repeated, a retry or a preemption would hit the attempt that the first one started.

    def retry(self, job_id: int, *, checkpoint: tuple[int, int] | None = None) -> None:
        body = {"checkpoint": list(checkpoint)} if checkpoint else None
        self._transport.send("POST", f"{job_path(job_id)}/retry", body, again=False)

    def retry_all(self, job_ids: Sequence[int]) -> dict[str, int]:
        answer = self._transport.send(
            "POST", "/api/v1/queue/retry", {"job_ids": job_ids}, again=False
        )
        names = ("retried", "unfinished", "over", "absent")
        return {name: self._transport.field(answer, name) for name in names}

    def preempt(self, job_id: int) -> bool:
        answer = self._transport.send("POST", f"{job_path(job_id)}/preempt", again=False)
        asked: bool = self._transport.field(answer, "asked")
        return asked

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

        answer = self._transport.send("POST", f"{job_path(job_id)}/shells", body, again=True)
        return self._transport.record(ShellTicket, answer)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which another `forge` reaches the same server."""
        server = self._transport.server
        given = {
            "FORGE_URL": server.url,
            "FORGE_API_KEY": server.key,
            "FORGE_SIGNING_KEY_FILE": server.signing_key and str(server.signing_key.absolute()),
            "FORGE_TLS_CA": server.ca and str(server.ca.absolute()),
            "FORGE_INSECURE_SKIP_VERIFY": None if server.verify else "true",
        }
        return {name: value for name, value in given.items() if value}

    def attempts(self, job_id: int) -> list[Attempt]:
        answer = self._transport.get(f"{job_path(job_id)}/attempts")
        return self._transport.records(Attempt, answer)

    def explain(self, job_id: int, *, workers: int = EXPLAINED) -> Explanation:
        from forge_schema.model.explanation import Explanation

        answer = self._transport.get(f"{job_path(job_id)}/explain", workers=workers)
        return self._transport.record(Explanation, answer)

    def events(self, job_id: int) -> list[Event]:
        return self._transport.records(Event, self._transport.get(f"{job_path(job_id)}/events"))

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place = BEGINNING,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        return self._log(job_id, after, attempt=attempt, of_rank=rank, since=since)

    def log_chunks_before(
        self,
        job_id: int,
        *,
        before: Place = THE_END,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        return self._log(job_id, before, last=True, attempt=attempt, of_rank=rank, since=since)

    def _log(
        self, job_id: int, place: Place, *, since: datetime | None, **chosen: bool | int | None
    ) -> list[LogChunk]:
        token, rank, number = place
        answer = self._transport.get(
            f"{job_path(job_id)}/logs",
            token=token,
            rank=rank,
            number=number,
            since=since and since.isoformat(),
            **chosen,
        )
        return self._transport.records(LogChunk, answer, job_id=job_id)

    def log_bytes(self, chunk: LogChunk) -> bytes:
        def once(url: str) -> bytes:
            stored = bytearray()
            self._objects.get(url, chunk.bytes + OVERHEAD, stored.extend, _ignore)
            return bytes(stored)

        return unpacked(chunk, self._by_url(chunk.url, lambda: self._chunk_url(chunk), once))

    def artifacts(self, job_id: int) -> list[Artifact]:
        found: list[Artifact] = []
        while True:
            after = found[-1].path if found else None
            answer = self._transport.get(f"{job_path(job_id)}/artifacts", after=after)
            page = self._transport.records(Artifact, answer, job_id=job_id)
            found += page
            if len(page) < FILES:
                return found

    def fetch_code(self, job_id: int, digest: str, path: Path) -> None:
        """Write an object of a job's code to `path`, verified."""
        address = f"{job_path(job_id)}/code/{digest}"

        def fresh() -> str:
            return self._transport.record(SignedUrl, self._transport.get(address)).url

        def once(url: str) -> None:
            with part.open("wb") as file:
                self._objects.get(url, LARGEST, file.write, _ignore)

        with verified_code(path, digest) as part:
            self._by_url(fresh(), fresh, once)

    def request(self, job_id: int) -> dict[str, Any]:
        """Return the fields that submit a job again."""
        asked: dict[str, Any] = self._transport.get(f"{job_path(job_id)}/request")
        return asked

    def checkpoints(self, job_id: int) -> list[Checkpoint]:
        answer = self._transport.get(f"{job_path(job_id)}/checkpoints")
        return self._transport.records(Checkpoint, answer)

    def download(self, artifact: Artifact, path: Path, progress: Progress | None = None) -> None:
        with verified_file(path, artifact) as partial:
            if in_chunks(artifact.key):
                self._put_together(artifact, partial, progress or _ignore)
                return

            def once(url: str) -> None:
                with partial.open("wb") as file:
                    self._objects.get(url, artifact.bytes, file.write, progress or _ignore)

            self._by_url(artifact.url, lambda: self._artifact_url(artifact), once)

    def _put_together(self, artifact: Artifact, path: Path, progress: Progress) -> None:
        page = partial(self._chunks_after, artifact)

        def fetch(chunk: ArtifactChunk, write: Callable[[bytes], object]) -> None:
            def once(url: str) -> None:
                content = bytearray()
                self._objects.get(url, chunk.bytes, content.extend, progress)
                write(bytes(content))

            self._by_url(chunk.url, lambda: page(chunk.offset - 1)[0].url, once)

        put_together(path, artifact, page, fetch)

    def _chunks_after(self, artifact: Artifact, after: int) -> list[ArtifactChunk]:
        address = f"{job_path(artifact.job_id)}/artifacts/chunks"
        answer = self._transport.get(address, file=artifact.path, after=after)
        return self._transport.records(ArtifactChunk, answer, job_id=artifact.job_id)

    def _by_url(self, url: str, fresh: Callable[[], str], act: Callable[[str], T]) -> T:
        """Act on a URL, or on a fresh one if it has expired."""
        try:
            return retried(lambda: act(url), patience_s=self._transport.patience_s)
        except UrlRefused:
            url = fresh()
            return retried(lambda: act(url), patience_s=self._transport.patience_s)

    def _chunk_url(self, chunk: LogChunk) -> str:
        before = (chunk.token, chunk.rank, chunk.number - 1)
        found = self.log_chunks(chunk.job_id, after=before)
        return next((one.url for one in found if one.key == chunk.key), chunk.url)

    def _artifact_url(self, artifact: Artifact) -> str:
        found = self.artifacts(artifact.job_id)
        return next((one.url for one in found if one.key == artifact.key), artifact.url)

    def workers(self) -> list[WorkerInfo]:
        from forge_schema.model.worker import WorkerInfo

        return self._transport.records(WorkerInfo, self._transport.get("/api/v1/workers"))

    def drain(self, worker_id: int, *, undo: bool = False) -> None:
        path = f"/api/v1/admin/workers/{worker_id}/drain"
        self._transport.send("POST", path, {"undo": undo}, again=True)

    def overview(self, *, jobs: int = 0, workers: int = 0) -> Overview:
        from forge_schema.model.overview import Overview

        answer = self._transport.get("/api/v1/overview", jobs=jobs, workers=workers)
        return self._transport.record(Overview, answer)

    def reports(self) -> list[str]:
        names: list[str] = self._transport.items(self._transport.get("/api/v1/reports"))
        return names

    def report(
        self, name: str, *, count: int, since: str | None = None, by: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        path = f"/api/v1/reports/{quote(name, safe='')}"
        grouped = ",".join(by) or None
        answer = self._transport.get(path, since=since, by=grouped, count=count)
        return [typed(row) for row in self._transport.items(answer)]

    def health(self) -> list[Check]:
        from forge_client.http.health import checks

        return checks(self._transport, self.me, self.workers)


def _ignore(_count: int) -> None:
    """Show nothing."""


def typed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with times parsed: `day`, `at`, `since` and names ending in `_at`."""
    return {name: _typed(name, value) for name, value in row.items()}


def _typed(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        if name == "day":
            return date.fromisoformat(value)
        if name in TIME_COLUMNS or name.endswith("_at"):
            return datetime.fromisoformat(value)
    except ValueError:
        return value
    return value
