"""The registry of workers: their capabilities, status and commands."""

from dataclasses import asdict
from datetime import timedelta
from uuid import UUID

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import duration_text
from forge_schema.model.spec import ALL_PORTS, GANG_NETWORK, RUNS
from forge_schema.model.states import Command, WorkerKind
from forge_schema.model.worker import Machine, NoSuchWorker, no_such_worker


class NameInUse(ForgeError):
    """Another live process is already this worker."""


# A live worker is never silent for longer than the default TTL of a lease.
ALIVE = timedelta(seconds=120)


class Registry:
    """Registers workers and tells them to drain or stop.

    `alive` is how long a worker keeps its name after it was last heard from.
    """

    def __init__(self, database: Database, *, actor: str, alive: timedelta = ALIVE) -> None:
        self._database = database
        self._actor = actor
        self._alive = alive

    def queue_id(self) -> UUID:
        """Return the random id of this queue."""
        row = self._database.row("queue_id", again=True)
        assert row is not None  # noqa: S101 - created by the migration
        queue_id: UUID = row["queue_id"]
        return queue_id

    def register(self, name: str, machine: Machine) -> int:
        """Register a worker, or a new boot of it, and return its id.

        Raises:
            NameInUse: a live worker with another folder has the name.
        """
        row = self._database.row("register", again=True, name=name, **self._described(machine))
        if row is None:
            raise self._in_use(name)
        self._offer(machine)
        worker_id: int = row["id"]
        return worker_id

    def register_known(self, worker_id: int, machine: Machine) -> WorkerKind:
        """Register a boot of a worker that an admin created, under the name given there.

        Returns:
            The worker's kind: `ephemeral` if the admin set that, else what it reports.

        Raises:
            NoSuchWorker: it was deleted.
            NameInUse: a live process with another folder has its token.
        """
        described = {**self._described(machine), "worker_id": worker_id}
        row = self._database.row("register_known", again=True, **described)
        if row is None:
            raise self._in_use(self.worker(worker_id)["name"])
        self._offer(machine)
        return WorkerKind(row["kind"])

    def disconnect(self, worker_id: int, boot_id: UUID, why: str = "") -> None:
        """Record that a worker left, and `why` if by itself. A newer boot is not affected."""
        which = {"worker_id": worker_id, "boot_id": boot_id}
        self._database.row("disconnect", again=True, **which, why=why or None)

    def command(self, worker_id: int, command: Command | None) -> None:
        """Ask a worker to drain or stop at its next renewal; None withdraws the request.

        Raises:
            NoSuchWorker: there is no such worker.
        """
        value = None if command is None else command.value
        row = self._database.row(
            "command", again=True, worker_id=worker_id, command=value, actor=self._actor
        )
        if row is None:
            raise no_such_worker(worker_id)

    def workers(self) -> list[Row]:
        """Return all workers, with the seconds since each was last heard from and its leases."""
        return self._database.rows("workers", again=True, worker_id=None, name=None)

    def worker(self, worker_id: int) -> Row:
        """Return one worker, as `workers` does; `NoSuchWorker` if there is no such worker."""
        return self._worker(str(worker_id), worker_id=worker_id, name=None)

    def worker_called(self, name: str) -> Row:
        """Return the worker of a name, as `workers` does.

        Raises:
            NoSuchWorker: there is no such worker.
        """
        return self._worker(repr(name), worker_id=None, name=name)

    def _worker(self, called: str, *, worker_id: int | None, name: str | None) -> Row:
        row = self._database.row("workers", again=True, worker_id=worker_id, name=name)
        if row is None:
            raise no_such_worker(called)
        return row

    def named(self, name: str) -> int:
        """Return the id of the newest worker with a name, including removed workers.

        Raises:
            NoSuchWorker: no worker has ever had this name.
        """
        row = self._database.row("worker_named", again=True, name=name)
        if row is None:
            raise NoSuchWorker(
                f"no worker has ever been called {name!r}",
                hint="`forge worker list` lists the workers",
            )
        worker_id: int = row["id"]
        return worker_id

    def _offer(self, machine: Machine) -> None:
        """Have a worker that comes keep room for a gang that lacks one, before its first claim."""
        if machine.address is not None:
            self._database.rows("fill", again=True)

    def _in_use(self, name: str) -> NameInUse:
        return NameInUse(
            f"worker {name} is alive in another folder or on another machine",
            hint="give this one its own name (over HTTP: a token), stop the other one and"
            f" wait up to {duration_text(self._alive.total_seconds())}, or take its place with"
            " --replace",
        )

    def _described(self, machine: Machine) -> dict[str, object]:
        described = asdict(machine)
        return {
            **described,
            "alive": self._alive,
            "kind": machine.kind.value,
            "gpus": Jsonb(described["gpus"]),
            "speed": None if machine.speed is None else Jsonb(machine.speed.reported()),
            "labels": Jsonb({**_unreported(machine), **machine.labels}),
        }


def _unreported(machine: Machine) -> dict[str, str]:
    """Return the labels of a worker that does not report them."""
    both = {RUNS: "images,projects"}
    return both if machine.address is None else {**both, GANG_NETWORK: ALL_PORTS}
