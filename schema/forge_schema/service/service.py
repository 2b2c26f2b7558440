"""The verbs about jobs, workers and reports.

What only some verbs need is imported by them: a command, which calls one or two, starts sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from forge_schema.database.pool import Row
from forge_schema.job_filter import Filter, parse
from forge_schema.model.fields import LARGEST
from forge_schema.model.job import (
    EXPLAINED,
    Attempt,
    Event,
    Firing,
    JobDetail,
    JobStatus,
    JobUnknown,
    ListedJob,
    job_states,
    possible_job,
)
from forge_schema.model.states import Command, Role, State
from forge_schema.model.stored import (
    BEGINNING,
    THE_END,
    Artifact,
    ArtifactChunk,
    Checkpoint,
    LogChunk,
    Place,
    in_chunks,
)
from forge_schema.read.jobs import CHUNKS
from forge_schema.read.named_jobs import job_named
from forge_schema.service.caller import Forbidden
from forge_schema.service.schedules import Scheduling
from forge_schema.storage import ObjectMissing, keys

if TYPE_CHECKING:
    from forge_schema.model.admin import Myself
    from forge_schema.model.explanation import Explanation
    from forge_schema.model.overview import Overview
    from forge_schema.model.worker import WorkerInfo
    from forge_schema.queue.cancel_retry import JobActs
    from forge_schema.queue.queue import Queue
    from forge_schema.queue.registry import Registry
    from forge_schema.service.admin import Admin
    from forge_schema.service.findings import Findings
    from forge_schema.service.notifications import Notifying
    from forge_schema.shell import ShellWanted

# What ties a job to others.
ALONE = {"sweep", "parallel", "after", "after_ok", "after_any"}


class Service(Scheduling):
    """Everything that a caller may ask for; viewers read, submitters act, admins see all owners."""

    @cached_property
    def admin(self) -> Admin:
        """The verbs of admins."""
        from forge_schema.service.admin import Admin

        return Admin(self.caller, self._open_database)

    @cached_property
    def findings(self) -> Findings:
        """The verbs about what jobs found out."""
        from forge_schema.service.findings import Findings

        return Findings(self.caller, self._open_database)

    @cached_property
    def notifications(self) -> Notifying:
        """The verbs about notifications."""
        from forge_schema.service.notifications import Notifying

        return Notifying(self.caller, self._open_database)

    def me(self) -> Myself:
        """Return who asks."""
        from forge_schema.model.admin import Myself

        return Myself(owner=self.caller.owner, role=self.caller.role, actor=self.caller.actor)

    def job_id(self, handle: str, *, owner: str | None = None) -> int:
        """Return the id of the job that a handle names: see `job_named`.

        Args:
            handle: an id, `@last`, a name or the beginning of one.
            owner: whose jobs come first, by default the caller's.
        """
        whose = self.caller.acting_for(owner, "name jobs")
        return job_named(self._database, handle, owner=whose, everyone=self.caller.admin)

    def job(self, job_id: int) -> JobDetail:
        """Return one job."""
        row = self._visible(job_id)
        return JobDetail.model_validate({**row, "firing": Firing.of(row["idempotency_key"])})

    def jobs(
        self,
        query: str = "",
        *,
        owner: str | None = None,
        states: Sequence[str] | None = None,
        before: int | None = None,
        count: int = 50,
    ) -> list[ListedJob]:
        """Return the jobs that match a filter, the newest first.

        Other owners have none unless the caller is an admin.

        Raises:
            FilterInvalid: the query is not a filter.
            StateUnknown: a state is none.
        """
        wanted: Filter | None = parse(query).seen_by(self.caller.owner)
        if states is not None and wanted is not None:
            wanted = wanted.within(job_states(states))
        if wanted is None or not self.caller.sees(owner):
            return []
        whose = self.caller.scope or owner
        rows = self._jobs.jobs(wanted, owner=whose, before=before, count=count)
        return [ListedJob.model_validate(row) for row in rows]

    def statuses(self, job_ids: Sequence[int]) -> dict[int, JobStatus]:
        """Return many jobs by id; those unknown to the caller are left out."""
        wanted = [possible_job(job_id) for job_id in job_ids]
        rows = self._jobs.statuses(wanted, owner=self.caller.scope)
        return {row["job_id"]: JobStatus.model_validate(row) for row in rows}

    def cancel(self, job_id: int, *, reason: str | None = None) -> State:
        """Cancel a job and return its state: `running` until its worker has stopped it.

        The `reason` is for the audit trail.
        """
        self._change(job_id)
        return self._queue.cancel(job_id, reason=reason)

    def retry(self, job_id: int, *, checkpoint: tuple[int, int] | None = None) -> None:
        """Give a failed or dead job fresh budgets and make it ready, as `Queue.retry`."""
        self._change(job_id)
        self._queue.retry(job_id, checkpoint)

    def preempt(self, job_id: int) -> bool:
        """Ask for a running job back; False if it is not running."""
        self._change(job_id)
        return self._queue.preempt(job_id)

    def shell(self, job_id: int, wanted: ShellWanted) -> tuple[int, str]:
        """Record that the caller enters a running job; return its worker's id and name.

        Raises:
            NotRunning: the program of this rank does not run now.
        """
        from forge_schema.access.shells import Shells

        self._change(job_id)
        return Shells(self._database, actor=self.caller.actor).enter(job_id, wanted)

    def may_enter(self, job_id: int) -> bool:
        """Tell whether the caller may, still, enter a job."""
        try:
            self._change(job_id)
        except (Forbidden, JobUnknown):
            return False
        return True

    def cancel_all(self, job_ids: Sequence[int]) -> dict[str, int]:
        """Cancel many jobs and count the outcomes, as `JobActs.cancel`."""
        return self._acts.cancel(job_ids)

    def retry_all(self, job_ids: Sequence[int]) -> dict[str, int]:
        """Retry many jobs and count the outcomes, as `JobActs.retry`."""
        return self._acts.retry(job_ids)

    def _change(self, job_id: int) -> None:
        self.caller.require(Role.SUBMITTER)
        self._visible(job_id)

    def attempts(self, job_id: int) -> list[Attempt]:
        """Return the finished attempts of a job, in order."""
        self._visible(job_id)
        return [Attempt.model_validate(row) for row in self._jobs.attempts(job_id)]

    def explain(self, job_id: int, *, workers: int = EXPLAINED) -> Explanation:
        """Return why a job is where it is, with so many workers, the nearest first."""
        from forge_schema.explain.explain import explain

        self._visible(job_id)
        return explain(self._database, job_id, workers=workers)

    def events(self, job_id: int) -> list[Event]:
        """Return what happened to a job, oldest first."""
        self._visible(job_id)
        return [Event.model_validate(row) for row in self._jobs.events(job_id)]

    def log_chunks(
        self,
        job_id: int,
        *,
        after: Place = BEGINNING,
        attempt: int | None = None,
        rank: int | None = None,
        since: datetime | None = None,
    ) -> list[LogChunk]:
        """Return some log chunks after a place, in reading order; none when there are no more.

        With an attempt or a rank, only its own; with a time, those stored since.
        """
        self._visible(job_id)
        rows = self._jobs.log_chunks(job_id, after=after, attempt=attempt, rank=rank, since=since)
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
        """Return some log chunks before a place, the last one first; otherwise as `log_chunks`."""
        self._visible(job_id)
        rows = self._jobs.log_chunks_before(
            job_id, before=before, attempt=attempt, rank=rank, since=since
        )
        return [LogChunk.model_validate(row) for row in rows]

    def artifacts(
        self, job_id: int, *, after: str | None = None, count: int | None = None
    ) -> list[Artifact]:
        """Return the artifacts of a job after a path, ordered by path; all without a count."""
        self._visible(job_id)
        rows = self._jobs.artifacts(job_id, after=after, count=count)
        return [Artifact.model_validate(row) for row in rows]

    def code_key(self, job_id: int, digest: str) -> str:
        """Return the key of an object of a job's code: its bundle, a segment, or its diff.

        Raises:
            ObjectMissing: the digest is none of theirs.
        """
        from forge_schema.storage.code import is_code

        row = self._visible(job_id)
        whole = {row["bundle_digest"], (row["spec"].get("git") or {}).get("diff")}
        if digest in whole:
            return keys.bundle(digest)
        key = keys.segment(digest)
        if row["bundle_digest"] and is_code(row["bundle_digest"], key, self._open_store()):
            return key
        raise ObjectMissing(f"job {job_id} has no code {digest}")

    def request(self, job_id: int) -> dict[str, Any]:
        """Return the fields that submit a job again, alone: without its sweep and dependencies."""
        from forge_schema.read.job_story import JobStory

        row = self._visible(job_id)
        asked = JobStory(self._database, job_id).asked()
        # Retries that the submitter chose differ from the same number by default.
        unsaid = ALONE if "max_failures" in row["spec"] else {*ALONE, "max_failures"}
        alone = {name: value for name, value in asked.items() if name not in unsaid}
        return {**alone, "owner": row["owner"]}

    def artifact_chunks(self, job_id: int, path: str, *, after: int = -1) -> list[ArtifactChunk]:
        """Return up to a hundred chunks of an artifact after an offset; none if it is one object.

        Raises:
            ObjectMissing: the list of its chunks is gone.
            CheckpointUnsound: it is damaged, or not that of a file of this size.
        """
        from forge_schema.storage.manifest import CheckpointUnsound, chunk_list

        self._visible(job_id)
        row = self._jobs.artifact(job_id, path)
        if row is None or not in_chunks(row["key"]):
            return []
        listed = chunk_list(self._open_store(), row["key"])
        if listed.size != row["bytes"]:
            raise CheckpointUnsound(f"the list of chunks {row['key']} is of another file")
        extents = listed.extents
        return [
            ArtifactChunk(key=one.key, offset=one.offset, bytes=one.size, sha256=one.sha256)
            for one in islice((one for one in extents if one.offset > after), CHUNKS)
        ]

    def checkpoints(self, job_id: int) -> list[Checkpoint]:
        """Return the complete checkpoints of a job, the newest first."""
        self._visible(job_id)
        return [Checkpoint.model_validate(row) for row in self._jobs.checkpoints(job_id)]

    def workers(self) -> list[WorkerInfo]:
        """Return every worker, by name."""
        from forge_schema.model.worker import WorkerInfo

        return [WorkerInfo.model_validate(row) for row in self._registry.workers()]

    def worker(self, worker_id: int) -> WorkerInfo:
        """Return one worker."""
        from forge_schema.model.worker import WorkerInfo

        return WorkerInfo.model_validate(self._registry.worker(worker_id))

    def worker_of(self, handle: str) -> WorkerInfo:
        """Return one worker, by its id or its name."""
        from forge_schema.model.worker import WorkerInfo

        if handle.isascii() and handle.isdecimal() and int(handle) <= LARGEST:
            return self.worker(int(handle))
        return WorkerInfo.model_validate(self._registry.worker_called(handle))

    def drain(self, worker_id: int, *, undo: bool = False) -> None:
        """Ask a worker to finish its jobs and take no more, or withdraw the request."""
        self.caller.require(Role.ADMIN)
        self._registry.command(worker_id, None if undo else Command.DRAIN)

    def overview(self, *, jobs: int = 0, workers: int = 0) -> Overview:
        """Return the state of the whole system, with so many running jobs and workers at most.

        Only the jobs that the caller sees are counted.
        """
        from forge_schema.model.overview import Overview
        from forge_schema.read import overview

        reads = overview.Overview(self._database)
        return Overview.model_validate(
            reads.now(owner=self.caller.scope, jobs=jobs, workers=workers)
        )

    def reports(self) -> list[str]:
        """Return the names of the reports that the caller may read."""
        from forge_schema.read.report_definitions import REPORTS

        return [name for name, one in REPORTS.items() if self.caller.admin or one.owned]

    def report(
        self, name: str, *, count: int, since: str | None = None, by: Sequence[str] = ()
    ) -> list[Row]:
        """Return the rows of a report since an age or a time, or of its groups."""
        from forge_schema.read import reports

        if not reports.report(name).owned and not self.caller.admin:
            raise Forbidden(f"the report {name} covers all owners; only an admin may read it")
        return reports.Reports(self._database).rows(
            name, since=since, by=by, owner=self.caller.scope, count=count
        )

    @property
    def _queue(self) -> Queue:
        from forge_schema.queue.queue import Queue

        return Queue(self._database, actor=self.caller.actor)

    @property
    def _acts(self) -> JobActs:
        from forge_schema.queue.cancel_retry import JobActs

        self.caller.require(Role.SUBMITTER)
        return JobActs(self._database, owner=self.caller.scope, actor=self.caller.actor)

    @property
    def _registry(self) -> Registry:
        from forge_schema.queue.registry import Registry

        return Registry(self._database, actor=self.caller.actor)
