"""The registry of workers: who is there, what they have, what they are asked to do."""

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import RUNS
from forge_schema.model.states import Command, WorkerKind


class NoSuchWorker(ForgeError):
    """There is no worker of this id or name."""

    code = "worker_not_found"


class NameInUse(ForgeError):
    """Another process, which is alive, is this worker already."""

    code = "name_in_use"


# Longer than a lease lasts by default, no worker is silent that lives.
ALIVE = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker reports of itself; memory and disk in MiB, price in money per hour.

    `folder_id` tells a restart from another worker; one of an earlier version has none. `replace`
    is whether it takes the place of one that is alive.
    """

    name: str
    boot_id: UUID
    cpus: float
    memory_mb: int
    disk_mb: int
    kind: WorkerKind = WorkerKind.PERSISTENT
    accelerator: str = "cpu"
    gpus: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    local: bool = False
    price_per_hour: float | None = None
    version: str = ""
    folder_id: UUID | None = None
    replace: bool = False


class Registry:
    """Registers workers and tells them to drain or stop.

    `alive` is how long a worker that was heard holds its name against another one.
    """

    def __init__(self, database: Database, *, actor: str, alive: timedelta = ALIVE) -> None:
        self._database = database
        self._actor = actor
        self._alive = alive

    def queue_id(self) -> UUID:
        """Return the random id of this queue."""
        row = self._database.one("queue_id", again=True)
        assert row is not None  # noqa: S101 - the migration made it
        queue_id: UUID = row["queue_id"]
        return queue_id

    def register(self, machine: Machine) -> int:
        """Register a worker, or a new boot of it, and return its id.

        Raises:
            NameInUse: a worker of another folder has the name, and is alive.
        """
        row = self._database.one("register", again=True, **self._described(machine))
        if row is None:
            raise self._in_use(machine.name)
        worker_id: int = row["id"]
        return worker_id

    def register_known(self, worker_id: int, machine: Machine) -> WorkerKind:
        """Register a boot of a worker that an admin made, under the name that it was given.

        Returns:
            Whether it leaves after one job or stays: an admin's `ephemeral` holds.

        Raises:
            NoSuchWorker: it was deleted.
            NameInUse: a process of another folder has its token, and is alive.
        """
        described = {**self._described(machine), "worker_id": worker_id}
        row = self._database.one("register_known", again=True, **described)
        if row is None:
            raise self._in_use(self.worker(worker_id)["name"])
        return WorkerKind(row["kind"])

    def disconnect(self, worker_id: int, boot_id: UUID) -> None:
        """Record that a worker left in good order; a newer boot of it is left alone."""
        self._database.one("disconnect", again=True, worker_id=worker_id, boot_id=boot_id)

    def command(self, worker_id: int, command: Command | None) -> None:
        """Ask a worker to drain or to stop with its next renewal; None takes it back.

        Raises:
            NoSuchWorker: there is no such worker.
        """
        value = None if command is None else command.value
        row = self._database.one(
            "command", again=True, worker_id=worker_id, command=value, actor=self._actor
        )
        if row is None:
            raise NoSuchWorker(f"there is no worker {worker_id}", hint="`forge workers` lists them")

    def workers(self) -> list[Row]:
        """Return every worker, how long it has been silent and how many leases it holds."""
        return self._database.rows("workers", again=True, worker_id=None)

    def worker(self, worker_id: int) -> Row:
        """Return one worker, as `workers` does.

        Raises:
            NoSuchWorker: there is no such worker.
        """
        row = self._database.one("workers", again=True, worker_id=worker_id)
        if row is None:
            raise NoSuchWorker(f"there is no worker {worker_id}", hint="`forge workers` lists them")
        return row

    def named(self, name: str) -> int:
        """Return the id of the newest worker of a name, also of one that was removed.

        Raises:
            NoSuchWorker: none was ever called so.
        """
        row = self._database.one("worker_named", again=True, name=name)
        if row is None:
            raise NoSuchWorker(
                f"no worker is or was called {name!r}", hint="`forge workers` lists those there are"
            )
        worker_id: int = row["id"]
        return worker_id

    def _in_use(self, name: str) -> NameInUse:
        return NameInUse(
            f"worker {name} is alive in another folder or on another machine",
            hint="give this one a name of its own (over HTTP: a token), stop the other one and wait"
            f" up to {self._alive.total_seconds():g} s, or take its place with --replace",
        )

    def _described(self, machine: Machine) -> dict[str, object]:
        return {
            **asdict(machine),
            "alive": self._alive,
            "kind": machine.kind.value,
            "gpus": Jsonb(machine.gpus),
            # Who does not say what it runs takes both kinds of job.
            "labels": Jsonb({RUNS: "images,projects", **machine.labels}),
        }
