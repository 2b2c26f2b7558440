"""The verbs of admins: keys, workers' tokens, limits, approvals, the audit trail."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from forge_schema.access.api_keys import Keys
from forge_schema.access.join_line import join_line
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.admin import (
    ApiKey,
    Approved,
    AwaitingApproval,
    Invitation,
    OwnerLimits,
    OwnerSettings,
    QueueInfo,
    Secret,
)
from forge_schema.model.job import Event
from forge_schema.model.states import Role, WorkerKind
from forge_schema.queue.cancel_retry import MOST as APPROVALS
from forge_schema.queue.cancel_retry import JobActs
from forge_schema.queue.limits import Limits
from forge_schema.queue.registry import Registry
from forge_schema.read.audit import LAST_DAY, PAGE, Audit
from forge_schema.service.caller import Caller, Verbs

# Booting a machine, or finding the person who can log in there, takes its time.
LINE_LASTS = timedelta(days=1)


class Admin(Verbs):
    """Every act is in the audit trail.

    Raises:
        Forbidden: the caller is not an admin.
    """

    def __init__(self, caller: Caller, database: Callable[[], Database]) -> None:
        caller.require(Role.ADMIN)
        super().__init__(caller, database)

    def api_keys(self) -> list[ApiKey]:
        """Return every API key, the newest first."""
        return [ApiKey.model_validate(row) for row in self._keys.listed()]

    def create_key(
        self,
        owner: str,
        role: str,
        *,
        name: str = "",
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
    ) -> Secret:
        """Make an API key, as `Keys.create`.

        Raises:
            TooManyKept: the owner has as many valid keys as anybody may.
        """
        self._check_room("key", "", owner)
        return Secret(
            *self._keys.create(owner, Role(role), name=name, lasts=lasts, public_key=public_key)
        )

    def rotate_key(self, key_id: str) -> str:
        """Give an API key a new text; the old one becomes invalid at once."""
        return self._keys.rotate(key_id)

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key permanently."""
        self._keys.revoke(key_id)

    def create_worker(
        self,
        name: str,
        *,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
        public_key: bytes | None = None,
    ) -> Secret:
        """Make a worker and its token, as `WorkerTokens.create`; an ephemeral one runs one job."""
        kind = WorkerKind.EPHEMERAL if ephemeral else WorkerKind.PERSISTENT
        worker_id, text = self._workers.create(
            name, kind=kind, labels=labels, lasts=lasts, public_key=public_key
        )
        return Secret(str(worker_id), text)

    def invitation(
        self,
        name: str,
        *,
        url: str,
        digest: str,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
    ) -> Invitation:
        """Make a worker that waits for its machine, as `WorkerTokens.invite`, and the line for it.

        Args:
            name: the worker's name.
            url: where the machine reaches the server.
            digest: the SHA-256 of the server's package.
            ephemeral: whether it exits after one job.
            labels: labels that override those the worker reports.
            lasts: time until the line expires; a day, if it is not given.
        """
        kind = WorkerKind.EPHEMERAL if ephemeral else WorkerKind.PERSISTENT
        lasts = LINE_LASTS if lasts is None else lasts
        join_line(url, "", digest)  # A URL that cannot be used must not change anything.
        worker_id, token = self._workers.invite(name, kind=kind, labels=labels, lasts=lasts)
        line = join_line(url, token, digest)
        lasts_s = int(lasts.total_seconds())
        return Invitation(id=worker_id, line=line, url=url, lasts_s=lasts_s)

    def rotate_worker(
        self, worker_id: int, *, lasts: timedelta | None = None, public_key: bytes | None = None
    ) -> str:
        """Give a worker a new token, as `WorkerTokens.rotate`; the old one is invalid at once."""
        return self._workers.rotate(worker_id, lasts=lasts, public_key=public_key)

    def worker_named(self, name: str) -> int:
        """Return the id of the newest worker of a name, removed ones included."""
        return Registry(self._database, actor=self.caller.actor).named(name)

    def delete_worker(self, worker_id: int) -> None:
        """Remove an offline worker and its token."""
        self._workers.delete(worker_id)

    def events(
        self,
        *,
        since: timedelta = LAST_DAY,
        after: datetime | None = None,
        job_id: int | None = None,
        worker_id: int | None = None,
        actor: str | None = None,
        action: str | None = None,
        count: int = PAGE,
    ) -> list[Event]:
        """Return a page of the audit trail, oldest first, as `Audit.events`."""
        rows = Audit(self._database).events(
            since=since,
            after=after,
            job_id=job_id,
            worker_id=worker_id,
            actor=actor,
            action=action,
            count=count,
        )
        return [Event.model_validate(row) for row in rows]

    def queues(self) -> list[QueueInfo]:
        """Return every queue that was ever used or set up, by name."""
        return [QueueInfo.model_validate(row) for row in self._limits.queues()]

    def pause(self, queue: str, *, paused: bool = True) -> None:
        """Stop starting jobs from a queue, or start them again."""
        self._limits.pause(queue, paused=paused)

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        """Limit the jobs and GPUs of a queue that run at once; None is no limit."""
        self._limits.limit_queue(queue, max_jobs=max_jobs, max_gpus=max_gpus)

    def set_queue(self, queue: str, settings: Mapping[str, bool | int | None]) -> None:
        """Set some of a queue's settings in one step, as `Limits.set_queue`."""
        self._limits.set_queue(queue, settings)

    def owner_limits(self) -> list[OwnerLimits]:
        """Return every owner who ever submitted or was limited, by name."""
        return [OwnerLimits.model_validate(row) for row in self._limits.owners()]

    def limit_owner(self, owner: str, settings: OwnerSettings) -> None:
        """Replace an owner's limits and weight, as `Limits.limit_owner`."""
        self._limits.limit_owner(owner, settings)

    def approvals(
        self,
        *,
        owner: str | None = None,
        sweep: str | None = None,
        after: int = 0,
        count: int = APPROVALS,
    ) -> list[AwaitingApproval]:
        """Return jobs with a higher id than `after` that wait for approval, the oldest first."""
        rows = self._database.rows(
            "approvals", again=True, owner=owner, sweep=sweep, after=after, count=count
        )
        return [AwaitingApproval.model_validate(row) for row in rows]

    def approve(self, job_ids: Sequence[int]) -> Approved:
        """Approve jobs, as `JobActs.approve`."""
        return JobActs(self._database, owner=None, actor=self.caller.actor).approve(job_ids)

    @property
    def _keys(self) -> Keys:
        return Keys(self._database, actor=self.caller.actor)

    @property
    def _workers(self) -> WorkerTokens:
        return WorkerTokens(self._database, actor=self.caller.actor)

    @property
    def _limits(self) -> Limits:
        return Limits(self._database, actor=self.caller.actor)
