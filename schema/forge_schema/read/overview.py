"""The overview: is all well, what waits, what runs, how much is done; a few bounded questions."""

from datetime import UTC, datetime, timedelta

from forge_schema.database.pool import Connection, Database, Row, run
from forge_schema.model.states import TERMINAL_STATES, State, WorkerStatus

MINUTES = 60
LAST_DAY = timedelta(days=1)
MOST = 200
ABSENT = (WorkerStatus.OFFLINE, WorkerStatus.CONNECTING)
ENDS = [state.value for state in State if state in TERMINAL_STATES]


class Overview:
    """Reads; what it costs hangs on what waits, runs and ended of late, not on the history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self, *, owner: str | None = None, jobs: int = 0, workers: int = 0) -> Row:
        """Return how everything stands.

        Args:
            owner: whose jobs are counted; None counts everybody's. Workers are everybody's.
            jobs: how many running jobs to list in `jobs`, those first that run for the longest.
            workers: how many workers to list in `workers`.

        Returns:
            `at`; `states`, how many jobs are `scheduled`, `ready` and `running`; `oldest`, the
            job that is ready for the longest, or None; `ended`, how many jobs ended how within
            the last hour, and `throughput`, the same for each of its minutes, the oldest first;
            `gpus`, how many are `there` and `busy`; `fleet`, how many workers are in which status;
            `cost_per_hour` of the workers that are there, or that run the owner's jobs, None where
            no price is known; `interruptions` of the last day by reason; `sweeper`.
        """
        with self._database.reporting() as connection:
            answer = _counts(connection, owner)
            answer["jobs"] = _listed(connection, "overview_jobs", jobs, owner=owner)
            answer["workers"] = _listed(connection, "overview_workers", workers)
        return answer


def _counts(connection: Connection, owner: str | None) -> Row:
    (places,) = run(connection, "overview_places", {"owner": owner})
    fleet = run(connection, "overview_fleet", {"owner": owner})
    there = [row for row in fleet if row["status"] not in ABSENT]
    throughput = _throughput(connection, places["at"].astimezone(UTC), owner)
    return {
        "at": places["at"],
        "states": {state: places[state] for state in ("scheduled", "ready", "running")},
        "oldest": next(iter(run(connection, "overview_oldest", {"owner": owner})), None),
        "ended": {end: sum(minute[end] for minute in throughput) for end in ENDS},
        "throughput": throughput,
        "gpus": {"there": sum(row["gpus"] for row in there), "busy": places["gpus_busy"]},
        "fleet": {row["status"]: row["workers"] for row in fleet},
        "cost_per_hour": _cost(there),
        "interruptions": _interruptions(connection, places["at"], owner),
        "sweeper": run(connection, "overview_sweeper", {})[0],
    }


# Times go as parameters: the plan is made for the one that is asked for.


def _throughput(connection: Connection, now: datetime, owner: str | None) -> list[Row]:
    first = now.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
    starts = [first + timedelta(minutes=minute) for minute in range(MINUTES)]
    minutes: dict[datetime, Row] = {at: {"at": at, **dict.fromkeys(ENDS, 0)} for at in starts}
    for row in run(connection, "overview_ended", {"since": first, "owner": owner}):
        # Between two questions a minute may have begun.
        if row["at"] in minutes:
            minutes[row["at"]][row["state"]] = row["jobs"]
    return list(minutes.values())


def _interruptions(connection: Connection, now: datetime, owner: str | None) -> dict[str, int]:
    params = {"since": now - LAST_DAY, "owner": owner}
    rows = run(connection, "overview_interrupted", params)
    return {row["reason"]: row["attempts"] for row in rows}


def _cost(there: list[Row]) -> float | None:
    prices = [row["price_per_hour"] for row in there if row["price_per_hour"] is not None]
    return sum(prices) if prices else None


def _listed(connection: Connection, name: str, count: int, **params: object) -> list[Row]:
    return run(connection, name, {**params, "count": min(count, MOST)}) if count else []
