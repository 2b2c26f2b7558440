"""What admins set: pauses and limits."""

from forge_schema.database import Database, Row, run


class Admin:
    """Every act is in the audit trail, in the same transaction."""

    def __init__(self, database: Database, *, actor: str) -> None:
        self._database = database
        self._actor = actor

    def pause(self, queue: str, *, paused: bool = True) -> None:
        """Pause a queue: no claim that begins afterwards takes from it. Or resume it."""
        # Two statements: the second's snapshot must see every lane that was being made.
        with self._database.transaction() as connection:
            params = {"queue": queue, "paused": paused, "actor": self._actor}
            run(connection, "pause", params)
            run(connection, "pause_lanes", {"queue": queue})

    def set_queue(
        self, queue: str, *, paused: bool, max_jobs: int | None, max_gpus: int | None
    ) -> None:
        """Set all of a queue's settings at once; a limit of None is none."""
        params = {"paused": paused, "max_jobs": max_jobs, "max_gpus": max_gpus}
        with self._database.transaction() as connection:
            run(connection, "set_queue", {**params, "queue": queue, "actor": self._actor})
            run(connection, "pause_lanes", {"queue": queue})

    def queues(self) -> list[Row]:
        """Return every queue with its settings, by name."""
        return self._database.rows("queues", again=True)

    def owners(self) -> list[Row]:
        """Return every owner with their limits and weight, by name."""
        return self._database.rows("quotas", again=True)

    def limit_queue(self, queue: str, *, max_jobs: int | None, max_gpus: int | None) -> None:
        """Set how many jobs and GPUs of a queue run at once; None is no limit."""
        self._database.one(
            "set_queue_limits",
            again=True,
            name=queue,
            max_jobs=max_jobs,
            max_gpus=max_gpus,
            actor=self._actor,
        )

    def limit_owner(
        self, owner: str, *, max_jobs: int | None, max_gpus: int | None, weight: float = 1.0
    ) -> None:
        """Set how many jobs and GPUs of an owner run at once, and the owner's weight."""
        self._database.one(
            "set_owner_quota",
            again=True,
            name=owner,
            max_jobs=max_jobs,
            max_gpus=max_gpus,
            weight=weight,
            actor=self._actor,
        )
