"""Estimate how long a job waits, from the jobs that ended recently."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from forge_schema.database.pool import Database, Row, run
from forge_schema.explain.fit import Room, devices, room
from forge_schema.explain.fleet import Candidate, FleetChances
from forge_schema.model.explanation import Estimate
from forge_schema.model.lease import array
from forge_schema.model.quantities import counted, duration_text
from forge_schema.queue.lane import read

# The shortest window with enough ended jobs is used; at most so many of them are read.
PASTS = (timedelta(hours=1), timedelta(days=1), timedelta(days=30))
MOST_LOOKED_AT = 5000
ENOUGH = 5
# The number of workers whose running jobs are read.
NEAREST = 20
# Use the BRIN index on the end, instead of reading the whole table.
BY_INDEX = "SET LOCAL enable_seqscan = off"


@dataclass(frozen=True, slots=True)
class Past:
    """The jobs that succeeded within the last `seconds`."""

    rows: list[Row]
    seconds: float

    def ended(self, lanes: Iterable[int]) -> int:
        """Count the jobs of some lanes."""
        wanted = set(lanes)
        return sum(row["lane_id"] in wanted for row in self.rows)

    def lasted(self) -> dict[tuple[str, str], float]:
        """Return the median run time in seconds by owner and job name."""
        took = defaultdict(list)
        for row in self.rows:
            took[row["owner"], row["name"]].append(row["held_s"])
        return {key: median(values) for key, values in took.items()}


def estimate(database: Database, job: Row, fleet: FleetChances, ahead: int) -> Estimate | None:
    """Estimate the wait of a job with `ahead` jobs before it; None without enough history."""
    for window in PASTS:
        past = _past(database, job, window)
        guess = _by_pace(job, fleet, ahead, past) if ahead else _by_ends(database, fleet, past)
        if guess is not None:
            return guess
    return None


def _past(database: Database, job: Row, window: timedelta) -> Past:
    params = {"since": job["now"] - window, "count": MOST_LOOKED_AT}
    with database.reporting() as connection:
        connection.execute(BY_INDEX)
        rows = run(connection, "explain_recent", params)
    # If the limit cut the rows off, they cover only the beginning of the window.
    cut = len(rows) == MOST_LOOKED_AT
    seconds = max(row["after_s"] for row in rows) if cut else window.total_seconds()
    return Past(rows, max(seconds, 1.0))


def _by_pace(job: Row, fleet: FleetChances, ahead: int, past: Past) -> Estimate | None:
    ended = past.ended({*fleet.front.lanes(), job["id"]})
    if ended < ENOUGH:
        return None
    period = duration_text(past.seconds)
    basis = f"{counted(ended, 'job')} competing for these workers succeeded within {period}"
    return Estimate(
        wait_s=(ahead + 1) * past.seconds / ended, basis=f"{basis}; {counted(ahead, 'job')} ahead"
    )


def _by_ends(database: Database, fleet: FleetChances, past: Past) -> Estimate | None:
    """Estimate when enough running jobs end, from the run times of earlier jobs like them."""
    nearest = fleet.able[:NEAREST]
    if not nearest:
        return None
    running = database.rows("explain_running", again=True, workers=array(nearest))
    lasted = past.lasted()
    waits = {
        worker_id: _until_room(fleet.candidates[worker_id], _left(running, worker_id, lasted))
        for worker_id in nearest
    }
    known = {worker_id: wait for worker_id, wait in waits.items() if wait is not None}
    if not known:
        return None
    soonest = min(known, key=lambda each_id: known[each_id])
    name = fleet.candidates[soonest].row["name"]
    basis = f"median run time of earlier jobs with the owners and names of those on {name}"
    return Estimate(wait_s=known[soonest], basis=basis)


def _left(
    running: Sequence[Row], worker_id: int, lasted: dict[tuple[str, str], float]
) -> list[tuple[float | None, Row]]:
    """Return a worker's running jobs with their remaining seconds, ordered by their end."""
    own = [row for row in running if row["worker_id"] == worker_id]
    left = [(lasted.get((row["owner"], row["name"])), row) for row in own]
    remaining = [
        (None if took is None else max(0.0, took - row["held_s"]), row) for took, row in left
    ]
    return sorted(remaining, key=lambda pair: (pair[0] is None, pair[0] or 0.0))


def _until_room(candidate: Candidate, left: list[tuple[float | None, Row]]) -> float | None:
    lane = read(candidate.wants)
    for n, (wait, _) in enumerate(left, start=1):
        if wait is None:
            return None
        if any(
            lane.fits(free) > 0
            for free in _without(candidate, [row for _, row in left[n:]]).choices()
        ):
            return wait
    return None


def _without(candidate: Candidate, rows: list[Row]) -> Room:
    """Return the free resources of a worker that runs only these jobs."""
    leased: Row = {
        "leases": len(rows),
        **{name: sum(row[name] for row in rows) for name in ("cpus", "memory_mb", "disk_mb")},
        "gpus": [row for row in rows if row["gpus"]],
    }
    return room(candidate.row, leased, devices([leased]))
