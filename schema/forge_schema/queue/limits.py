"""What admins set: pauses and limits."""

from collections.abc import Mapping

from forge_schema.database.pool import Database, Row, run


class Admin:
    """Every act is in the audit trail, in the same transaction."""

    def __init__(self, database: Database, *, actor: str) -> None:
        self._database = database
        self._actor = actor

    def pause(self, queue: str, *, paused: bool = True) -> None:
        """Pause a queue: no claim that begins afterwards takes from it. Or resume it."""
        self._set("pause", {"queue": queue, "paused": paused}, queue=queue)

    def set_queue(
        self, queue: str, *, paused: bool, max_jobs: int | None, max_gpus: int | None
    ) -> None:
        """Set all of a queue's settings at once; a limit of None is none."""
        params = {"paused": paused, "max_jobs": max_jobs, "max_gpus": max_gpus}
        self._set("set_queue", {**params, "queue": queue}, queue=queue)

    def queues(self) -> list[Row]:
        """Return every queue with its settings, by name."""
        return self._database.rows("queues", again=True)

    def owners(self) -> list[Row]:
        """Return every owner with their limits and weight, by name."""
        return self._database.rows("quotas", again=True)

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        """Set how many jobs and GPUs of a queue run at once; None is no limit.

        Every claim that begins afterwards keeps to it.
        """
        params = {"name": queue, "max_jobs": max_jobs, "max_gpus": max_gpus}
        self._set("set_queue_limits", params, queue=queue)

    def limit_owner(
        self, owner: str, *, max_jobs: int | None, max_gpus: int | None, weight: float = 1.0
    ) -> None:
        """Set how many jobs and GPUs of an owner run at once, and the owner's weight.

        Every claim that begins afterwards keeps to it.
        """
        params = {"name": owner, "max_jobs": max_jobs, "max_gpus": max_gpus, "weight": weight}
        self._set("set_owner_quota", params, owner=owner)

    def _set(
        self,
        name: str,
        params: Mapping[str, object],
        *,
        queue: str | None = None,
        owner: str | None = None,
    ) -> None:
        # Each statement's snapshot must see what the one before waited for: lanes that were being
        # made, and what was being set on the lanes' other side.
        lanes = {"queue": queue, "owner": owner}
        with self._database.transaction() as connection:
            run(connection, name, {**params, "actor": self._actor})
            run(connection, "lock_lanes", lanes)
            run(connection, "lanes_follow", lanes)
