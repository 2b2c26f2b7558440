"""The overview of the queue, for people and for monitoring systems, by bounded queries."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from forge_schema.database.pool import Connection, Database, DatabaseUser, Row, run
from forge_schema.database.statements import statement
from forge_schema.model.job import MOST_SHOWN
from forge_schema.model.states import UNFINISHED_STATES, StateWord, WorkerStatus, in_words

MINUTES = 60
LAST_DAY = timedelta(days=1)
ABSENT = (WorkerStatus.OFFLINE, WorkerStatus.CONNECTING)
ENDS = [word.value for word in StateWord if word.terminal]

PAGE = 100
# Each of these shapes is compared with each worker.
SHAPES = 30
# Maximum count of each lane's ready jobs, of scheduled jobs, of held jobs, and of leases.
MOST = 10_000
# Longer than every statement timeout: by then, all ends of this age are committed.
COMMITTED_AFTER = timedelta(seconds=60)

DAYS = 14
# A burst on the first day says nothing about the next ones.
LEAST_DAYS = 1.0
# The store of a queue whose servers have named none yet.
UNNAMED_STORE = "another store"


class OverviewReader(DatabaseUser):
    """Reads the overview. Its cost depends on current and recent jobs, not on the history."""

    def now(self, *, scope: list[str] | None = None, jobs: int = 0, workers: int = 0) -> Row:
        """Return the overview.

        Args:
            scope: the owners whose jobs are counted; None counts all. Workers are always all.
            jobs: how many running jobs to list in `jobs`, the longest-running first.
            workers: how many workers to list in `workers`.

        Returns:
            `at`; `states`, the number of unfinished jobs by state, and `awaiting_approval`, how
            many of the held ones wait for an admin's approval; `oldest`, the
            job that has been ready longest, or None; `ended`, the number of jobs ended in the last
            hour by outcome, and `throughput`, the same by minute, oldest first; `gpus`, how many
            are `there` and `busy`; `fleet`, the number of workers by status; `cost_per_hour` of
            the online workers, or of those that run such jobs, None if no price is known;
            `interruptions` of the last day by reason; `sweeper`.
        """
        with self._database.reporting() as connection:
            answer = _counts(connection, scope)
            answer["jobs"] = _listed(connection, "overview_jobs", jobs, scope=scope)
            answer["workers"] = _listed(connection, "overview_workers", workers)
        return answer


def _counts(connection: Connection, scope: list[str] | None) -> Row:
    (places,) = run(connection, "overview_places", {"scope": scope})
    fleet = run(connection, "overview_fleet", {"scope": scope})
    there = [row for row in fleet if row["status"] not in ABSENT]
    throughput = _throughput(connection, places["at"].astimezone(UTC), scope)
    busy = places["gpus_busy"]
    return {
        "at": places["at"],
        "states": {state.value: places[state] for state in UNFINISHED_STATES},
        "awaiting_approval": places["awaiting_approval"],
        "oldest": next(iter(run(connection, "overview_oldest", {"scope": scope})), None),
        "ended": {end: sum(minute[end] for minute in throughput) for end in ENDS},
        "throughput": throughput,
        # A silent worker's jobs keep their GPUs until their leases end.
        "gpus": {"there": max(sum(row["gpus"] for row in there), busy), "busy": busy},
        "fleet": {row["status"]: row["workers"] for row in fleet},
        "cost_per_hour": _cost(there),
        "interruptions": _interruptions(connection, places["at"], scope),
        "sweeper": run(connection, "overview_sweeper", {})[0],
    }


# Times are parameters, so that the planner sees them.


def _throughput(connection: Connection, now: datetime, scope: list[str] | None) -> list[Row]:
    first = now.replace(second=0, microsecond=0) - timedelta(minutes=MINUTES - 1)
    starts = [first + timedelta(minutes=minute) for minute in range(MINUTES)]
    minutes: dict[datetime, Row] = {at: {"at": at, **dict.fromkeys(ENDS, 0)} for at in starts}
    for row in run(connection, "overview_ended", {"since": first, "scope": scope}):
        # A new minute may have begun between two queries.
        if row["at"] in minutes:
            minutes[row["at"]][in_words(row["state"])] += row["jobs"]
    return list(minutes.values())


def _interruptions(
    connection: Connection, now: datetime, scope: list[str] | None
) -> dict[str, int]:
    params = {"since": now - LAST_DAY, "scope": scope}
    rows = run(connection, "overview_interrupted", params)
    return {row["reason"]: row["attempts"] for row in rows}


def _cost(there: list[Row]) -> float | None:
    prices = [row["price_per_hour"] for row in there if row["price_per_hour"] is not None]
    return sum(prices) if prices else None


def _listed(connection: Connection, name: str, count: int, **params: object) -> list[Row]:
    return run(connection, name, {**params, "count": min(count, MOST_SHOWN)}) if count else []


def queues(
    database: Database, *, scope: list[str] | None = None, after: str = "", count: int = PAGE
) -> list[Row]:
    """Return the queues after a name; with a scope, only those owners' queues and numbers."""
    params = {"scope": scope, "after": after, "count": min(count, PAGE + 1)}
    with database.reporting() as connection:
        return run(connection, "page_queues", params)


def demand(database: Database, *, scope: list[str] | None = None, count: int = SHAPES) -> list[Row]:
    """Return the demand for each shape in each queue, and how much of it the fleet can run."""
    params = {"scope": scope, "count": min(count, SHAPES)}
    with database.reporting() as connection:
        return run(connection, "page_demand", params)


@dataclass(slots=True)
class Tally:
    """The number of ended attempts, and their GPU time in seconds."""

    attempts: int = 0
    gpu_seconds: float = 0.0


class QueueCounts:
    """`ended` is what `count_ended` has counted, by queue and reason. It never decreases."""

    def __init__(self, database: Database, ttl: timedelta) -> None:
        self._database = database
        self._ttl = ttl
        self._counted_to: datetime | None = None
        self.ended: dict[tuple[str, str], Tally] = defaultdict(Tally)

    def lanes(self) -> list[Row]:
        """Return lanes: owner, queue, shape and jobs by state; `oldest_s` is the longest wait."""
        return self._database.rows("gauge_lanes", again=True, most=MOST)

    def fleet(self) -> list[Row]:
        """Return the number of workers and GPUs by worker status."""
        return self._database.rows("gauge_fleet", again=True)

    def now(self) -> Row:
        """Return the number of leases and the time of the last sweeper's tick."""
        (row,) = self._database.rows("gauge_now", again=True, most=MOST, near=self._ttl / 4)
        return row

    def count_ended(self) -> None:
        """Add the attempts that ended since the last call, but no more than a day of them.

        The history is append-only, and attempts younger than a minute are left for the next call,
        so each is counted once without a stored counter. The first call sets the start.
        """
        with self._database.reporting() as connection:
            bounds = {"since": self._counted_to, "committed_after": COMMITTED_AFTER}
            rows = run(connection, "gauge_ended", bounds)
        for row in rows:
            if row["queue"] is not None:
                tally = self.ended[row["queue"], row["reason"]]
                tally.attempts += row["attempts"]
                tally.gpu_seconds += row["gpu_seconds"]
        self._counted_to = rows[0]["until"]


@dataclass(frozen=True, slots=True)
class Growth:
    """The size of the tables, and what each day adds to them and to the store, in bytes.

    The two are None for a queue that is too young to tell. `folder` is the server's data directory,
    None if this role may not know it.
    """

    bytes: int
    tables_per_day: float | None
    objects_per_day: float | None
    folder: str | None


def growth(database: Database) -> Growth:
    """Return how the queue has grown in the last two weeks.

    A day adds its jobs, less those that retention removed, times what a job takes on average.

    Raises:
        ReportTooSlow: there are too many jobs to look at.
    """
    with database.reporting() as connection:
        (clock,) = connection.execute(statement("clock")).fetchall()
        # As constants, by which the planner finds the months and an index.
        params = {"now": clock["now"], "since": clock["now"] - timedelta(days=DAYS)}
        (row,) = connection.execute(statement("growth"), params).fetchall()
    size, days, submitted = row["bytes"], row["days"], row["submitted"]
    if days < LEAST_DAYS:
        return Growth(size, None, None, row["folder"])
    more = max(submitted - row["removed"], 0)
    tables = more * size / max(row["jobs"], 1) / days
    objects = row["stored"] * more / submitted / days
    return Growth(size, tables, objects, row["folder"])


def other_store(database: Database, url: str, size: Callable[[str], int | None]) -> str:
    """Return the URL of the store in which a queue keeps its objects, unless it is this one.

    That it has another URL says nothing, if it has the objects.

    Args:
        database: the queue's database.
        url: the store's URL.
        size: returns the size of an object in it, None if there is none.
    """
    row = database.row("known_store", again=True) or {}
    keys, known = row.get("keys"), row.get("store")
    if known == url or (keys and all(size(key) is not None for key in keys)):
        return ""
    # None is remembered before a server has started since the upgrade.
    return known or (UNNAMED_STORE if keys else "")


def has_objects(database: Database) -> bool:
    """Tell whether a queue keeps any objects; without, any store would do."""
    return bool((database.row("known_store", again=True) or {}).get("keys"))


def remember_store(database: Database, url: str, size: Callable[[str], int | None]) -> str:
    """Remember a server's store, unless the queue's objects are in the one that is returned."""
    other = other_store(database, url, size)
    database.rows("remember_store", again=True, store=url, here=not other)
    return other
