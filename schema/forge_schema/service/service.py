"""The verbs about jobs, workers and reports.

What only some verbs need is imported by them: a command, which calls one or two, starts sooner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from forge_schema.job_filter import Filter, parse
from forge_schema.model.fields import Digest, Flag, Moment, Path, Word
from forge_schema.model.job import (
    EXPLAINED,
    MOST_EXPLAINED,
    Attempt,
    Event,
    Firing,
    FoundJobs,
    JobDetail,
    JobNamed,
    JobStatus,
    ListedJob,
    Statuses,
    job_states,
    possible_job,
)
from forge_schema.model.reading import FILES, LARGEST, LogPlaces
from forge_schema.model.states import Command
from forge_schema.model.stored import (
    CHUNKS,
    PAGE,
    Artifact,
    ArtifactChunk,
    Checkpoint,
    LogChunk,
    in_chunks,
)
from forge_schema.service.acting import JOB, ActsOnJobs
from forge_schema.service.caller import Forbidden
from forge_schema.service.parameters import (
    AttemptNumber,
    Columns,
    Count,
    FullPage,
    IdInQuery,
    JobId,
    JobIds,
    Number,
    Owner,
    Query,
    Rank,
    Shown,
    States,
    Token,
)
from forge_schema.service.schedules import Scheduling
from forge_schema.service.verb import ADMIN, SUBMITTER, Pages, Sent, verb

if TYPE_CHECKING:
    from forge_schema.model.admin import Myself, Team, TeamStatus
    from forge_schema.model.explanation import Explanation
    from forge_schema.model.overview import Overview
    from forge_schema.model.worker import WorkerInfo
    from forge_schema.queue.registry import Registry
    from forge_schema.service.admin import Admin
    from forge_schema.service.findings import Findings
    from forge_schema.service.notifications import Notifying

# The newest jobs among which a name is searched at once.
MOST_SEARCHED = 50_000
LOG_PAGES = Pages({"token": "token", "rank": "rank", "number": "number"}, CHUNKS)
CHUNK_PAGES = Pages({"after": "offset"}, CHUNKS)
Changes = Annotated[
    Mapping[str, Any],
    Sent(kind="JobChanges", where="whole", write=lambda fields, _owner: dict(fields)),
]
# What ties a job to others.
ALONE = {"sweep", "parallel", "after", "after_ok", "after_any"}


class Service(LogPlaces, ActsOnJobs, Scheduling):
    """Everything that a caller may ask for; viewers read, submitters act, admins for all owners."""

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

    @verb("GET", "/me", tag="token")
    def me(self) -> Myself:
        """Return the caller's identity."""
        from forge_schema.model.admin import Myself

        caller = self.caller
        return Myself(owner=caller.owner, role=caller.role, actor=caller.actor, sees=caller.scope)

    @verb("POST", "/me/key", again=False, errors=(409,), tag="token")
    def accept_invitation(self, secret_sha256: Digest) -> None:
        """Replace the secret of the invitation that the request came with by the caller's own.

        The key stays until it is revoked. If the answer was lost, the new key tells by working.

        Args:
            secret_sha256: of the whole text of the new key.

        Raises:
            NotInvited: the request came with no invitation.
        """
        from forge_schema.access.api_keys import Keys

        keys = Keys(self._database, actor=self.caller.actor)
        keys.accept(self.caller.key_id or "", bytes.fromhex(secret_sha256))

    @verb("GET", "/queue/job-id", answer=JobNamed, errors=(404,))
    def job_id(self, handle: Word, *, owner: Owner = None) -> int:
        """Return the id of the job that a handle names; the owner's jobs come first.

        A handle is an id, the beginning of a name, `@last` or `@1` for the owner's newest job, or
        `@2` for the one before it. A name that could mean several jobs is refused.
        """
        from forge_schema.read.job_pages import job_named

        whose = self.caller.acting_for(owner, "name jobs", reading=True)
        scope = self.caller.scope
        others = None if scope is None else [each for each in scope if each != whose]
        return job_named(self._database, handle, owner=whose, others=others)

    @verb("GET", JOB, errors=(404,))
    def job(self, job_id: JobId) -> JobDetail:
        """Return a job's status and request."""
        row = self._visible(job_id)
        return JobDetail.model_validate({**row, "firing": Firing.of(row["idempotency_key"])})

    @verb("GET", "/queue/jobs", pages=Pages({"before": "job_id"}))
    def jobs(
        self,
        query: Query = "",
        *,
        owner: Word | None = None,
        states: States = None,
        before: IdInQuery | None = None,
        count: Count = 50,
    ) -> list[ListedJob]:
        """Return the jobs that match a filter, the newest first. Non-admins see only their own.

        Raises:
            FilterInvalid: the query is not a filter.
            StateUnknown: a state is none.
        """
        wanted, whose = self._wanted(query, owner, states)
        if wanted is None:
            return []
        rows = self._jobs.jobs(wanted, scope=whose, before=before, count=count)
        return [ListedJob.model_validate(row) for row in rows]

    @verb("GET", "/queue/search")
    def search(
        self,
        query: Query = "",
        *,
        owner: Word | None = None,
        states: States = None,
        before: IdInQuery | None = None,
        count: Count = 50,
    ) -> FoundJobs:
        """Return the jobs that match a filter, as `jobs`, among the newest 50,000.

        If there are older ones, `before` says where to go on.
        """
        wanted, whose = self._wanted(query, owner, states)
        if wanted is None:
            return FoundJobs(items=[])
        rows, before = self._jobs.search(
            wanted, scope=whose, before=before, count=count, look=MOST_SEARCHED
        )
        return FoundJobs(items=[ListedJob.model_validate(row) for row in rows], before=before)

    def _wanted(
        self, query: str, owner: str | None, states: Sequence[str] | None
    ) -> tuple[Filter | None, list[str] | None]:
        """Return the filter, None if nothing that the caller sees can match, and whose jobs."""
        wanted: Filter | None = parse(query).seen_by(self.caller.owner)
        if states is not None and wanted is not None:
            wanted = wanted.within(job_states(states))
        return wanted if self.caller.sees(owner) else None, self.caller.within(owner)

    @verb("POST", "/queue/statuses", answer=Statuses)
    def statuses(self, job_ids: JobIds) -> dict[int, JobStatus]:
        """Return the status of some jobs. Those that do not exist are left out."""
        wanted = [possible_job(job_id) for job_id in job_ids]
        rows = self._jobs.statuses(wanted, scope=self.caller.scope)
        return {row["job_id"]: JobStatus.model_validate(row) for row in rows}

    @verb("PATCH", JOB, SUBMITTER, errors=(404, 409), names_fields="job")
    def change(self, job_id: JobId, fields: Changes) -> JobDetail:
        """Change a job that waits: its priority, queue, time limit, resources and retries.

        It keeps its place. Tables are merged, all else is replaced. Idempotent.
        """
        from forge_schema.service.changing import Change

        self._change(job_id)
        Change(self._database, self.caller.actor, job_id, fields).make()
        return self.job(job_id)

    @verb("GET", f"{JOB}/attempts", errors=(404,))
    def attempts(self, job_id: JobId) -> list[Attempt]:
        """Return a job's finished attempts, in order."""
        self._visible(job_id)
        return [Attempt.model_validate(row) for row in self._jobs.attempts(job_id)]

    @verb("GET", f"{JOB}/explain", errors=(404,))
    def explain(
        self,
        job_id: JobId,
        *,
        workers: Annotated[int, Field(ge=0, le=MOST_EXPLAINED)] = EXPLAINED,
    ) -> Explanation:
        """Explain why a job waits and what would start it, where it runs, or how it ended.

        With so many workers, the nearest first.
        """
        from forge_schema.explain import explain

        self._visible(job_id)
        return explain(self._database, job_id, workers=workers)

    @verb("GET", f"{JOB}/events", errors=(404,))
    def events(self, job_id: JobId) -> list[Event]:
        """Return what happened to a job, oldest first."""
        self._visible(job_id)
        return [Event.model_validate(row) for row in self._jobs.events(job_id)]

    @verb("GET", f"{JOB}/logs", errors=(404,), pages=LOG_PAGES, signed=True)
    def log_page(
        self,
        job_id: JobId,
        token: Token = 0,
        rank: Rank = 0,
        number: Number = -1,
        *,
        attempt: AttemptNumber | None = None,
        of_rank: Rank | None = None,
        since: Moment | None = None,
        last: bool = False,
    ) -> list[LogChunk]:
        """Return up to a hundred chunks of a job's output after a position, in reading order.

        With `last`, those before the position, last one first.
        """
        self._visible(job_id)
        place, which = (token, rank, number), {"attempt": attempt, "rank": of_rank}
        if last:
            rows = self._jobs.log_chunks_before(job_id, before=place, since=since, **which)
        else:
            rows = self._jobs.log_chunks(job_id, after=place, since=since, **which)
        return [LogChunk.model_validate(row) for row in rows]

    @verb(
        "GET", f"{JOB}/artifacts", errors=(404,), pages=Pages({"after": "path"}, FILES), signed=True
    )
    def artifacts(
        self, job_id: JobId, *, after: Path | None = None, count: FullPage = None
    ) -> list[Artifact]:
        """Return up to 250 of a job's output files after a path, ordered by path.

        Args:
            job_id: the job.
            after: a path.
            count: how many; all in this process without it.
        """
        self._visible(job_id)
        rows = self._jobs.artifacts(job_id, after=after, count=count)
        return [Artifact.model_validate(row) for row in rows]

    @verb("GET", f"{JOB}/request", errors=(404,))
    def request(self, job_id: JobId) -> dict[str, Any]:
        """Return the fields that submit the job again, without its sweep and its dependencies."""
        from forge_schema.read.jobs import JobStory

        row = self._visible(job_id)
        asked = JobStory(self._database, job_id).asked()
        # Retries that the submitter chose differ from the same number by default.
        unsaid = ALONE if "max_failures" in row["spec"] else {*ALONE, "max_failures"}
        alone = {name: value for name, value in asked.items() if name not in unsaid}
        return {**alone, "owner": row["owner"]}

    @verb("GET", f"{JOB}/artifacts/chunks", errors=(404,), pages=CHUNK_PAGES, signed=True)
    def artifact_chunks(
        self,
        job_id: JobId,
        path: Annotated[Path, Sent("file")],
        *,
        after: Annotated[int, Field(ge=-1, le=LARGEST)] = -1,
    ) -> list[ArtifactChunk]:
        """Return up to a hundred chunks of an output file after an offset.

        There are none if it is one object.

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
            ArtifactChunk(
                key=extent_after.key,
                offset=extent_after.offset,
                bytes=extent_after.size,
                sha256=extent_after.sha256,
            )
            for extent_after in islice(
                (extent for extent in extents if extent.offset > after), CHUNKS
            )
        ]

    @verb("GET", f"{JOB}/checkpoints", errors=(404,))
    def checkpoints(self, job_id: JobId) -> list[Checkpoint]:
        """Return a job's complete checkpoints, the newest first."""
        self._visible(job_id)
        return [Checkpoint.model_validate(row) for row in self._jobs.checkpoints(job_id)]

    @verb("GET", "/workers", tag="fleet")
    def workers(self) -> list[WorkerInfo]:
        """Return all workers, by name."""
        return self._told_workers(self._registry.workers())

    @verb("GET", "/workers/{worker_id:worker}", errors=(404,), tag="fleet")
    def worker_of(self, handle: Annotated[Word, Sent("worker_id")]) -> WorkerInfo:
        """Return one worker, by its id or its name."""
        if handle.isascii() and handle.isdecimal() and int(handle) <= LARGEST:
            row = self._registry.worker(int(handle))
        else:
            row = self._registry.worker_called(handle)
        (seen,) = self._told_workers([row])
        return seen

    @verb("POST", "/admin/workers/{worker_id}/drain", ADMIN, errors=(404,), tag="admin", bare=True)
    def drain(self, worker_id: IdInQuery, *, undo: Flag = False) -> None:
        """Ask a worker to finish its jobs and take no more. An ephemeral one then exits.

        With `undo`, the request is withdrawn.
        """
        self._registry.command(worker_id, None if undo else Command.DRAIN)

    @verb("GET", "/overview", tag="fleet")
    def overview(self, *, jobs: Shown = 0, workers: Shown = 0) -> Overview:
        """Return the state of the whole system, with so many running jobs and workers at most.

        Non-admins see only their own jobs in it.
        """
        from forge_schema.model.overview import Overview
        from forge_schema.read import overview

        reads = overview.OverviewReader(self._database)
        return Overview.model_validate(
            reads.now(scope=self.caller.scope, jobs=jobs, workers=workers)
        )

    @verb("GET", "/queue/teams")
    def teams(self) -> list[Team]:
        """Return the teams that the caller sees, with their owners, by name."""
        from forge_schema.model.admin import Team
        from forge_schema.queue.limits import Limits

        rows = Limits(self._database, actor=self.caller.actor).teams()
        return [Team.model_validate(row) for row in rows if self.caller.sees_team(row["name"])]

    @verb("GET", "/queue/teams/{name:path}", errors=(404,))
    def team(self, name: Word) -> TeamStatus:
        """Return a team that the caller sees: members, limits, what runs, waits and was used."""
        from forge_schema.model.admin import TeamStatus
        from forge_schema.queue.limits import Limits, NoSuchTeam

        if not self.caller.sees_team(name):
            raise NoSuchTeam(name, filter(None, [self.caller.team]))
        limits = Limits(self._database, actor=self.caller.actor)
        return TeamStatus.model_validate(limits.team(name))

    @verb("GET", "/reports", tag="reports")
    def reports(self) -> list[str]:
        """Return the names of the reports that the caller may read."""
        from forge_schema.read.report_definitions import REPORTS

        return [name for name, report in REPORTS.items() if self.caller.everyone or report.owned]

    @verb("GET", "/reports/{name}", answer="ReportRows", errors=(404, 422), tag="reports")
    def report(
        self,
        name: Word,
        *,
        count: Annotated[int, Field(ge=1, le=10_000)] = PAGE,
        since: Annotated[Word, Field(examples=["7d", "2026-11-01"])] | None = None,
        until: Annotated[Word, Field(examples=["1d", "2026-12-01"])] | None = None,
        by: Columns = (),
    ) -> list[dict[str, Any]]:
        """Return the rows of a report, since an age or a time, or of its groups by columns.

        They end before `until`. Non-admins see only their own.
        """
        from forge_schema.compatibility import FORMER_REPORTS
        from forge_schema.read import reports

        name = FORMER_REPORTS.get(name, name)
        if not reports.report(name).owned and not self.caller.everyone:
            raise Forbidden(f"the report {name} covers all owners; only who sees all may read it")
        return reports.Reports(self._database).rows(
            name, since=since, until=until, by=by, scope=self.caller.scope, count=count
        )

    @property
    def _registry(self) -> Registry:
        from forge_schema.queue.registry import Registry

        return Registry(self._database, actor=self.caller.actor)
