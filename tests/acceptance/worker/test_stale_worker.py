"""A worker that was frozen past its lease's end, and wakes when another has done the job."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from forge_schema.model.lease import End, Fence
from forge_schema.model.states import Reason
from forge_schema.model.worker import Capacity
from forge_schema.queue.lanes import Lanes
from support.workers.worker import Bed, Worker, containers_of, processes_below

if TYPE_CHECKING:
    from support.waiting import Eventually

# The first attempt writes whatever can be written until the file `go` appears; the second ends.
SOURCE = """
import json, os, pathlib, threading
places = [pathlib.Path(os.environ[f"FORGE_{name}_DIR"]) for name in ("CHECKPOINT", "OUTPUT")]
attempt = os.environ["FORGE_ATTEMPT"]
for turn in range(10**9):
    print("attempt", attempt, "turn", turn, flush=True)
    for place in places:
        new = place / "new"
        new.write_text(f"{attempt} {turn}")
        new.rename(place / "state")
    with open(os.environ["FORGE_METRICS_FILE"], "a") as metrics:
        metrics.write(json.dumps({"step": turn}) + chr(10))
    if attempt == "2" or pathlib.Path("go").exists():
        break
    threading.Event().wait(0.1)
"""
TABLES = ("outcome", "attempt", "log_chunk", "checkpoint", "artifact", "metric", "lease", "ready")


def rows(made: Bed, job: int) -> dict[str, list[str]]:
    """Return all that the database has of a job."""
    with made.database.connection() as connection:
        return {
            table: sorted(
                str(row)
                for row in connection.execute(f"SELECT * FROM {table} WHERE job_id = %s", [job])
            )
            for table in TABLES
        }


def job_is_gone(made: Bed, worker: Worker) -> bool:
    """Tell whether none of a worker's jobs is still running; the worker itself may be."""
    running = processes_below([str(worker.folder / "jobs")])
    return not running and not containers_of(made.token)


def fence_of(worker: Worker) -> Fence:
    """Return the token of the one attempt that a worker holds."""
    kept = json.loads(next(worker.folder.glob("jobs/*/lease.json")).read_text())
    return Fence(kept["job_id"], kept["token"], UUID(kept["nonce"]))


# The queue does not know how a job runs, so each kind of job is in one of the two places.
@pytest.mark.parametrize(
    ("both", "ended_meanwhile"), [("docker", False), ("process", True)], indirect=["both"]
)
def test_stale_worker_changes_nothing_and_stops_its_job(
    both: Bed, eventually: Eventually, *, ended_meanwhile: bool
) -> None:
    stale = both.worker("stale")
    job = both.script(SOURCE, max_losses=1)
    eventually(lambda: all(rows(both, job)[t] for t in ("checkpoint", "log_chunk", "metric")))
    stale.freeze()
    fence = fence_of(stale)
    both.worker("fresh")
    both.succeeds(job)
    accepted = next(row for row in both.jobs.attempts(job) if row["accepted"])
    assert both.reasons(job) == ["worker_lost", "succeeded"]
    if ended_meanwhile:
        next(stale.folder.glob("jobs/*/work")).joinpath("go").touch()
    prefix = f"jobs/{job}/{accepted['attempt']}-{accepted['token']}-"
    rows_before, objects_before = rows(both, job), both.objects(prefix)
    assert objects_before
    stale.send(signal.SIGCONT)
    eventually(lambda: job_is_gone(both, stale), every=0.1)
    eventually(lambda: not list(stale.folder.glob("jobs/*")))
    # It continues to work for the queue, and has reported everything that it had to by then.
    both.workers[1].leave()
    following = both.script("print('next')")
    both.succeeds(following)
    assert both.jobs.attempts(following)[0]["worker"] == stale.name
    assert rows(both, job) == rows_before
    assert both.objects(prefix) == objects_before
    # The queue knows a moment before the worker says so.
    eventually(lambda: "ended" in stale.output)
    (delivered,) = [line for line in stale.output.splitlines() if "ended" in line]
    assert f"job={following}" in delivered
    lost = "\n".join(line for line in stale.output.splitlines() if "lease_lost" in line)
    assert lost.count("lease_lost") == 1, lost
    assert f"job={job}" in lost
    assert "over or another worker's" in lost

    late = End(fence, Reason.SUCCEEDED)
    assert not both.queue.finish([late])[0].accepted
    lanes = Lanes(both.database, 0)
    assert not both.queue.finish_and_claim([late], lanes, Capacity(1, 1, 1), count=0)[0][0].accepted
    assert rows(both, job) == rows_before
