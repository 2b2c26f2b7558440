"""A queue in a transaction that is rolled back: cheap enough for many constructed cases."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from forge_schema.database.pool import Connection
from forge_schema.explain import explain
from forge_schema.model.lease import End
from forge_schema.model.states import Phase, Reason, WorkerStatus
from forge_schema.model.worker import Capacity, Gpu, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.limits import Limits
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from psycopg.rows import dict_row
from support.database.databases import Pinned
from support.database.session import SESSION
from support.queue.rig import spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forge_schema.model.explanation import Explanation
    from forge_schema.model.lease import Grant


class Scene:
    """Real verbs on one connection. `machines` are the workers, by name."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.connection = connection
        self.database = Pinned(url, connection)
        self.queue = Queue(self.database, actor="user:ann")
        self.admin = Limits(self.database, actor="user:root")
        self.registry = Registry(self.database, actor="user:root")
        self.machines: dict[str, tuple[int, Machine]] = {}
        self.patience_s = 1_000_000.0

    def worker(self, name: str = "w", **changes: Any) -> int:  # noqa: ANN401  fields of all types
        """Register a worker of 8 CPUs, or a new boot of it."""
        gpus = [Gpu(f"GPU-{name}-{n}", **gpu) for n, gpu in enumerate(changes.pop("gpus", []))]
        described = {"cpus": 8, "memory_mb": 8192, "disk_mb": 8192, "gpus": gpus, **changes}
        described.setdefault("accelerator", "cuda" if gpus else "cpu")
        machine = Machine(boot_id=uuid4(), **described)
        self.machines[name] = self.registry.register(name, machine), machine
        return self.machines[name][0]

    def submit(self, **changes: Any) -> int:  # noqa: ANN401  as above
        """Submit a small job."""
        return self.queue.submit([spec(**changes)])[0]

    def claim(self, name: str = "w", **free: Any) -> Grant | None:  # noqa: ANN401  as above
        """Claim for a worker with everything free, unless stated otherwise."""
        worker_id, machine = self.machines[name]
        whole: dict[str, Any] = {
            "cpus": machine.cpus,
            "memory_mb": machine.memory_mb,
            "disk_mb": machine.disk_mb,
        }
        kind = machine.gpus[0] if machine.gpus else Gpu("", "", 0)
        whole |= {"gpus": len(machine.gpus), "gpus_in_all": len(machine.gpus)}
        whole |= {"gpu_model": kind.name, "vram_mb": kind.vram_mb}
        lanes = Lanes(self.database, worker_id, refresh_s=-1, patience_s=self.patience_s)
        grants = self.queue.claim(lanes, Capacity(**{**whole, **free}))
        return grants[0] if grants else None

    def hold(self, name: str = "w", *, devices: tuple[int, ...] = (), **job: Any) -> Grant:  # noqa: ANN401  as above
        """Have a worker run a job."""
        job_id = self.submit(priority=900, **job)
        grant = self.claim(name)
        assert grant is not None
        assert grant.fence.job_id == job_id
        given = [self.machines[name][1].gpus[n].uuid for n in devices]
        self.queue.report(grant.fence, Phase.RUNNING, devices=given or None)
        return grant

    def end(self, grant: Grant, reason: Reason = Reason.SUCCEEDED, **changes: Any) -> None:  # noqa: ANN401  as above
        """End a lease."""
        self.queue.finish([End(grant.fence, reason, **changes)])

    def heartbeat(self, name: str, status: WorkerStatus, **condition: object) -> None:
        """Send a worker's heartbeat."""
        worker_id, machine = self.machines[name]
        self.queue.renew(worker_id, machine.boot_id, [], status, condition)

    def sql(self, text: str, *params: object) -> None:
        """Run SQL directly on the tables."""
        self.connection.execute(text.encode(), params)

    def explain(self, job_id: int, **options: Any) -> Explanation:  # noqa: ANN401  as above
        """Explain a job."""
        return explain(self.database, job_id, **{"patience_s": self.patience_s, **options})


class Scenes:
    """Makes scenes on one connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = Connection.connect(url, row_factory=dict_row)
        self._connection.execute(SESSION)
        # All statements of a scene run in one transaction, however slow the machine is.
        self._connection.execute("SET idle_in_transaction_session_timeout = 0")
        self._connection.commit()

    @contextmanager
    def scene(self) -> Iterator[Scene]:
        """Yield a scene, and roll it back at the end."""
        with self._connection.transaction(force_rollback=True):
            yield Scene(self._url, self._connection)

    def close(self) -> None:
        self._connection.close()
