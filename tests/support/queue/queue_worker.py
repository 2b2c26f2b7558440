"""A worker process that claims and finishes until the queue is empty; arguments: URL and name."""

from __future__ import annotations

import json
import sys
from uuid import uuid4

from forge_schema.database.pool import Database
from forge_schema.model.lease import End, Ended, Grant
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry


def work(url: str, name: str) -> tuple[list[list[int]], int]:
    """Run all jobs, one at a time; return [priority, job] of each, and those accepted."""
    with Database(url) as database:
        queue = Queue(database, actor=f"worker:{name}")
        machine = Machine(boot_id=uuid4(), cpus=1, memory_mb=1, disk_mb=1)
        lanes = Lanes(database, Registry(database, actor=name).register(name, machine))
        free = Capacity(1, 1, 1)
        print("ready", flush=True)  # noqa: T201  its parent waits for the word
        sys.stdin.readline()
        ran: list[list[int]] = []
        ended: list[Ended] = []
        grants: list[Grant] = queue.claim(lanes, free)
        while grants:
            ran += [[grant.priority, grant.fence.job_id] for grant in grants]
            ends = [End(grant.fence, Reason.SUCCEEDED) for grant in grants]
            done, grants = queue.finish_and_claim(ends, lanes, free)
            ended += done
        return ran, sum(end.accepted for end in ended)


if __name__ == "__main__":
    print(json.dumps(work(*sys.argv[1:])))  # noqa: T201  its answer
