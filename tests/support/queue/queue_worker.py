"""Worker processes that claim and finish until the queue is empty."""

from __future__ import annotations

from multiprocessing import get_context
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Ended, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

# The priority and number of each job that a worker ran, in order, and how many were accepted.
Ran: TypeAlias = tuple[list[tuple[int, int]], int]
START_S = 120.0


def worked(url: str, count: int) -> list[Ran]:
    """Have as many processes work at once, and return what each ran."""
    # Forked from a process that has imported what they need, and nothing of the tests.
    context = get_context("forkserver")
    context.set_forkserver_preload([Queue.__module__, Registry.__module__])
    with context.Manager() as manager:
        together = manager.Barrier(count)
        with context.Pool(count) as pool:
            each = [(url, f"w{n}", together) for n in range(count)]
            return pool.starmap(_work, each, chunksize=1)


def _work(url: str, name: str, together: Barrier) -> Ran:
    """Run jobs, one at a time, from the moment when all workers are ready."""
    with Database(url) as database:
        queue = Queue(database, actor=f"worker:{name}")
        machine = Machine(boot_id=uuid4(), cpus=1, memory_mb=1, disk_mb=1)
        lanes = Lanes(database, Registry(database, actor=name).register(name, machine))
        free = Capacity(1, 1, 1)
        together.wait(START_S)
        ran: list[tuple[int, int]] = []
        ended: list[Ended] = []
        grants: list[Grant] = queue.claim(lanes, free)
        while grants:
            ran += [(grant.priority, grant.fence.job_id) for grant in grants]
            ends = [End(grant.fence, Reason.SUCCEEDED) for grant in grants]
            done, grants = queue.finish_and_claim(ends, lanes, free)
            ended += done
        return ran, sum(end.accepted for end in ended)
