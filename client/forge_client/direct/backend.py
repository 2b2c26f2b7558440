"""The backend that reaches database and store by itself, without a server between."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Self

from forge_schema.database.pool import Database, Row
from forge_schema.explain.explain import explain
from forge_schema.model.admin import Myself
from forge_schema.model.explanation import Explanation
from forge_schema.model.job import Attempt, Event, JobDetail, JobStatus, Template
from forge_schema.model.overview import Overview
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Command, Role, State
from forge_schema.model.stored import Artifact, Checkpoint, LogChunk
from forge_schema.model.worker import WorkerInfo
from forge_schema.queue.inputs import Sources
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.queue.templates import Templates
from forge_schema.read.audit import Audit
from forge_schema.read.jobs import Jobs
from forge_schema.read.overview import Overview as Reads
from forge_schema.read.report import REPORTS
from forge_schema.read.reports import Reports
from forge_schema.storage import Store, keys, open_store

from forge_client.backend import BEGINNING, THE_END, Check, Place, Progress
from forge_client.direct.admin import DirectAdmin
from forge_client.direct.checks import checks
from forge_client.direct.database_url import checked_url
from forge_client.direct.findings import DirectFindings
from forge_client.direct.job_configs import check_config, whole
from forge_client.direct.objects import fetch
from forge_client.direct.translation import translated
from forge_client.downloads import unpacked
from forge_client.errors import ClientError
from forge_client.project.bundle import Bundle
from forge_client.project.image_tar import ImageTar
from forge_client.settings import Connection
from forge_client.validation import checked_job, checked_states


class DirectBackend:
    """Speaks SQL and the store's own protocol; connects when it is first asked.

    Args:
        connection: the database and the store.
        owner: who acts, for the audit trail, and whose job configs are meant.
    """

    slowest_s = 0.5

    def __init__(self, connection: Connection, *, owner: str) -> None:
        self._connection = connection
        self._owner = owner
        self._actor = f"user:{owner}"
        self._opening = Lock()
        self._opened: Database | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    @cached_property
    def admin(self) -> DirectAdmin:
        return DirectAdmin(lambda: self._database, actor=self._actor)

    @cached_property
    def findings(self) -> DirectFindings:
        return DirectFindings(lambda: self._database, owner=self._owner)

    def me(self) -> Myself:
        # Whoever reaches the database may do everything there.
        return Myself(owner=self._owner, role=Role.ADMIN, actor=self._actor)

    def check(self, specs: Sequence[Mapping[str, Any]]) -> None:
        with translated():
            jobs = self._whole(specs)
        self._connection.store()
        with translated():
            sources = Sources(self._database)
            for job in jobs:
                sources.check(job, any_owner=True)

    def submit(self, specs: Sequence[Mapping[str, Any]]) -> list[int]:
        with translated():
            jobs = self._whole(specs)
            # Whoever reaches the database may read every job there.
            return self._queue.submit(jobs, any_owner=True) if jobs else []

    def has_bundle(self, bundle: Bundle) -> bool:
        with translated():
            return self._store.size(keys.bundle(bundle.digest)) is not None

    def upload_bundle(self, bundle: Bundle, progress: Progress | None = None) -> None:
        with translated():
            key = keys.bundle(bundle.digest)
            self._store.put_file(key, bundle.path, if_absent=True, progress=progress)

    def has_image(self, image: ImageTar) -> bool:
        with translated():
            return self._store.size(keys.image(image.digest)) is not None

    def upload_image(self, image: ImageTar, progress: Progress | None = None) -> None:
        with translated():
            key = keys.image(image.digest)
            self._store.put_file(key, image.path, if_absent=True, progress=progress)

    def job(self, job_id: int) -> JobDetail:
        with translated():
            return JobDetail.model_validate(self._jobs.job(checked_job(job_id)))

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Sequence[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[JobStatus]:
        with translated():
            chosen = None if states is None else [State(w) for w in checked_states(states)]
            rows = self._jobs.jobs(owner=owner, states=chosen, before=before, count=count)
            return [JobStatus.model_validate(row) for row in rows]

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobStatus]:
        with translated():
            rows = self._jobs.statuses([checked_job(job_id) for job_id in job_ids])
            return {row["job_id"]: JobStatus.model_validate(row) for row in rows}

    def cancel(self, job_id: int) -> str:
        with translated():
            return self._queue.cancel(checked_job(job_id)).value

    def retry(self, job_id: int) -> None:
        with translated():
            self._queue.retry(checked_job(job_id))

    def preempt(self, job_id: int) -> bool:
        with translated():
            return self._queue.preempt(checked_job(job_id))

    def note_entry(self, job_id: int, program: str) -> None:
        """Write down that somebody runs a program inside a job."""
        with translated():
            detail: dict[str, object] = {"program": program}
            Audit(self._database).note(self._actor, "entered", detail, job_id=checked_job(job_id))

    def attempts(self, job_id: int) -> list[Attempt]:
        with translated():
            return [Attempt.model_validate(row) for row in self._jobs.attempts(checked_job(job_id))]

    def explain(self, job_id: int, *, workers: int = 20) -> Explanation:
        with translated():
            return explain(self._database, checked_job(job_id), workers=workers)

    def events(self, job_id: int) -> list[Event]:
        with translated():
            return [Event.model_validate(row) for row in self._jobs.events(checked_job(job_id))]

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place = BEGINNING,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        with translated():
            rows = self._jobs.log_chunks(
                checked_job(job_id), after=after, attempt=attempt, rank=rank, since=since
            )
            return [LogChunk.model_validate(row) for row in rows]

    def log_chunks_before(
        self,
        job_id: int,
        *,
        before: Place = THE_END,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        with translated():
            rows = self._jobs.log_chunks_before(
                checked_job(job_id), before=before, attempt=attempt, rank=rank, since=since
            )
            return [LogChunk.model_validate(row) for row in rows]

    def log_bytes(self, chunk: LogChunk) -> bytes:
        with translated():
            return unpacked(chunk, self._store.get(chunk.key))

    def artifacts(self, job_id: int) -> list[Artifact]:
        with translated():
            return [
                Artifact.model_validate(row) for row in self._jobs.artifacts(checked_job(job_id))
            ]

    def checkpoints(self, job_id: int) -> list[Checkpoint]:
        with translated():
            rows = self._jobs.checkpoints(checked_job(job_id))
            return [Checkpoint.model_validate(row) for row in rows]

    def download(self, artifact: Artifact, path: Path, progress: Progress | None = None) -> None:
        with translated():
            fetch(self._store, artifact, path, progress)

    def workers(self) -> list[WorkerInfo]:
        with translated():
            return [WorkerInfo.model_validate(row) for row in self._registry.workers()]

    def drain(self, worker_id: int, *, undo: bool = False) -> None:
        with translated():
            self._registry.command(worker_id, None if undo else Command.DRAIN)

    def overview(self, *, jobs: int = 0, workers: int = 0) -> Overview:
        with translated():
            return Overview.model_validate(Reads(self._database).now(jobs=jobs, workers=workers))

    def templates(self) -> list[Template]:
        with translated():
            return [Template.model_validate(row) for row in self._templates.listed()]

    def template(self, name: str) -> Template:
        with translated():
            return Template.model_validate(self._templates.get(name))

    def keep_template(self, name: str, spec: Mapping[str, Any]) -> None:
        with translated():
            check_config(spec)
            self._templates.keep(name, spec)

    def remove_template(self, name: str) -> None:
        with translated():
            self._templates.remove(name)

    def reports(self) -> list[str]:
        return list(REPORTS)

    def report(
        self, name: str, *, count: int, since: str | None = None, by: Sequence[str] = ()
    ) -> list[Row]:
        with translated():
            return Reports(self._database).rows(name, since=since, by=by, count=count)

    def health(self) -> list[Check]:
        return checks(self._connection, self._worker_rows)

    def _worker_rows(self) -> list[Row]:
        return self._registry.workers()

    @property
    def _database(self) -> Database:
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Database:
        try:
            with translated():
                return Database(checked_url(self._connection.database_url)).open()
        except ClientError as error:
            if error.code == "database_unreachable" and self._connection.up_dir:
                error.hint = (
                    f"was the `forge up` of {self._connection.up_dir} killed? Start it again"
                )
            raise

    @cached_property
    def _store(self) -> Store:
        return open_store(self._connection.store())

    @cached_property
    def _queue(self) -> Queue:
        return Queue(self._database, actor=self._actor)

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self._database)

    @property
    def _templates(self) -> Templates:
        return Templates(self._database, owner=self._owner, actor=self._actor)

    @property
    def _registry(self) -> Registry:
        return Registry(self._database, actor=self._actor)

    def _whole(self, specs: Sequence[Mapping[str, Any]]) -> list[JobSpec]:
        return [whole(spec, lambda: self._templates) for spec in specs]
