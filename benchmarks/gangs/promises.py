"""What must hold in every run, whatever its seed."""

from collections.abc import Iterator

from forge_schema.sweeper.tick import TURN, Windows

from benchmarks.gangs.bed import PATIENCE_S
from benchmarks.gangs.evidence import Evidence

# No gang needs more than one turn here, and those before it need little of theirs.
WAIT_S = TURN.total_seconds()
FETCH_S = Windows().fetching.total_seconds()


def broken(found: Evidence) -> list[str]:
    """Return what does not hold, as sentences."""
    return [*_ends(found), *_runs(found), *_waits(found), *found.left]


def _ends(found: Evidence) -> Iterator[str]:
    for i, job in found.jobs.items():
        if job["state"] != "succeeded":
            yield f"job {i} is {job['state'] or 'not over'}: {job['detail']}"
    for lease in found.leases:
        if lease["attempt"] > 1:
            yield f"job {lease['job_id']} was begun again, on worker {lease['worker_id']}"
        if lease["reason"] != "succeeded":
            yield f"rank {lease['rank']} of job {lease['job_id']} ended as {lease['reason']}"


def _runs(found: Evidence) -> Iterator[str]:
    for (job_id, _), run in found.runs.items():
        ranks = list(range(found.jobs[job_id]["nodes"]))
        if [lease["rank"] for lease in run] != ranks:
            yield f"job {job_id} has the ranks {[lease['rank'] for lease in run]}"
        if len({lease["worker_id"] for lease in run}) < len(ranks):
            yield f"job {job_id} has two members on one worker"
        for lease in run:
            if lease["result"] != {"rank": lease["rank"], "met": ranks}:
                yield f"rank {lease['rank']} of job {job_id} met {lease['result']}"


def _waits(found: Evidence) -> Iterator[str]:
    for what, waits, most in (
        ("a single job waited", found.waits(1), WAIT_S),
        ("a gang waited", found.waits(None), WAIT_S),
        ("a worker kept a place for a gang", found.kept(), WAIT_S),
        ("a prepared member waited for the others", found.gathering(), PATIENCE_S),
        ("a member's lease waited for its worker", found.fetching(), FETCH_S),
    ):
        if waits and max(waits) > most:
            yield f"{what} for {max(waits):.0f} s, at most {most:.0f} s are allowed"
