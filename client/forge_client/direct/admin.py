"""What only admins may do, in the database itself."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from forge_schema.access.api_keys import Keys
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.database.pool import Database
from forge_schema.model.admin import ApiKey, QueueInfo, Quota
from forge_schema.model.job import Event
from forge_schema.model.states import Role, WorkerKind
from forge_schema.queue.limits import Admin
from forge_schema.queue.registry import Registry
from forge_schema.read.audit import Audit

from forge_client.administration import LAST_DAY, Secret
from forge_client.direct.translation import translated


class DirectAdmin:
    """Speaks SQL.

    Args:
        database: opens the database.
        actor: who acts, for the audit trail.
    """

    def __init__(self, database: Callable[[], Database], *, actor: str) -> None:
        self._database = database
        self._actor = actor

    def api_keys(self) -> list[ApiKey]:
        with translated():
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
        with translated():
            made, text = self._keys.create(
                owner, Role(role), name=name, lasts=lasts, public_key=public_key
            )
            return Secret(made, text)

    def rotate_key(self, key_id: str) -> str:
        with translated():
            return self._keys.rotate(key_id)

    def revoke_key(self, key_id: str) -> None:
        with translated():
            self._keys.revoke(key_id)

    def create_worker(
        self,
        name: str,
        *,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
    ) -> Secret:
        kind = WorkerKind.EPHEMERAL if ephemeral else WorkerKind.PERSISTENT
        with translated():
            made, text = self._workers.create(name, kind=kind, labels=labels, lasts=lasts)
            return Secret(str(made), text)

    def rotate_worker(self, worker_id: int, *, lasts: timedelta | None = None) -> str:
        with translated():
            return self._workers.rotate(worker_id, lasts=lasts)

    def worker_named(self, name: str) -> int:
        with translated():
            return Registry(self._database(), actor=self._actor).named(name)

    def delete_worker(self, worker_id: int) -> None:
        with translated():
            self._workers.delete(worker_id)

    def events(
        self,
        *,
        since: timedelta = LAST_DAY,
        after: datetime | None = None,
        job_id: int | None = None,
        worker_id: int | None = None,
        actor: str | None = None,
        count: int = 1000,
    ) -> list[Event]:
        with translated():
            rows = Audit(self._database()).events(
                since=since,
                after=after,
                job_id=job_id,
                worker_id=worker_id,
                actor=actor,
                count=count,
            )
            return [Event.model_validate(row) for row in rows]

    def queues(self) -> list[QueueInfo]:
        with translated():
            return [QueueInfo.model_validate(row) for row in self._admin.queues()]

    def pause(self, queue: str, *, paused: bool = True) -> None:
        with translated():
            self._admin.pause(queue, paused=paused)

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        with translated():
            self._admin.limit_queue(queue, max_jobs=max_jobs, max_gpus=max_gpus)

    def quotas(self) -> list[Quota]:
        with translated():
            return [Quota.model_validate(row) for row in self._admin.owners()]

    def limit_owner(
        self, owner: str, *, max_jobs: int | None, max_gpus: int | None, weight: float
    ) -> None:
        with translated():
            self._admin.limit_owner(owner, max_jobs=max_jobs, max_gpus=max_gpus, weight=weight)

    @property
    def _keys(self) -> Keys:
        return Keys(self._database(), actor=self._actor)

    @property
    def _workers(self) -> WorkerTokens:
        return WorkerTokens(self._database(), actor=self._actor)

    @property
    def _admin(self) -> Admin:
        return Admin(self._database(), actor=self._actor)
