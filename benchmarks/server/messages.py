"""The bodies that are sent, as JSON."""

import json
from dataclasses import asdict
from typing import Any

from benchmarks.fleet.transports import CONDITION
from benchmarks.fleet.world import Simulated, waiting_job


def beat(worker: Simulated) -> bytes:
    """Return a worker's heartbeat."""
    return _json(
        boot_id=worker.boot_id,
        status="busy" if worker.fence else "idle",
        leases=[asdict(worker.fence)] if worker.fence else [],
        condition=CONDITION,
    )


def look(worker: Simulated, *, hinted: bool) -> bytes:
    """Return a worker's claim, with the end of its job, if it has one."""
    ends = [asdict(worker.fence)] if worker.fence else []
    return _json(boot_id=worker.boot_id, ends=ends, free=asdict(worker.room), hinted=hinted)


def submission(owner: int = 0, **changes: Any) -> bytes:  # noqa: ANN401  fields of all types
    """Return the submission of one job that waiting workers can run."""
    job = waiting_job(owner).model_dump(mode="json", exclude_defaults=True, exclude={"owner"})
    return _json(jobs=[{**job, **changes}])


def _json(**said: object) -> bytes:
    return json.dumps(said, default=str).encode()
