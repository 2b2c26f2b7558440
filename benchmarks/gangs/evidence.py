"""What happened, as the database tells it; times are in seconds from the first submit."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import psycopg
from psycopg.rows import dict_row

from benchmarks.gangs.bed import PLACES

BEGAN = "(SELECT min(submitted_at) FROM job)"
JOBS = f"""
    SELECT
        id, coalesce((spec ->> 'nodes')::integer, 1) AS nodes,
        extract(EPOCH FROM submitted_at - {BEGAN})::float8 AS at, outcome.state::text AS state,
        outcome.detail
    FROM job LEFT JOIN outcome ON outcome.job_id = job.id
    ORDER BY id
"""
LEASES = f"""
    SELECT
        job_id, rank, attempt, worker_id, reason::text AS reason,
        extract(EPOCH FROM claimed_at - {BEGAN})::float8 AS claimed,
        extract(EPOCH FROM started_at - {BEGAN})::float8 AS started,
        extract(EPOCH FROM finished_at - {BEGAN})::float8 AS ended,
        (
            SELECT values FROM result
            WHERE result.job_id = attempt.job_id AND result.token = attempt.token
        ) AS result
    FROM attempt
    ORDER BY job_id, attempt, rank
"""
NOTES = f"""
    SELECT what, job_id, worker_id, extract(EPOCH FROM at - {BEGAN})::float8 AS at
    FROM bench.note ORDER BY number
"""
LEFT = """
    SELECT 'lease of job ' || job_id AS what FROM lease
    UNION ALL SELECT 'job ' || job_id || ' forms' FROM forming
    UNION ALL SELECT 'worker ' || worker_id || ' is drafted for job ' || job_id FROM draft
    UNION ALL SELECT 'job ' || job_id || ' waits' FROM ready
"""

Row = dict[str, Any]
Span = tuple[float, float]


@dataclass(frozen=True)
class Draft:
    """A worker that kept a place for a gang: until it formed, and until it was told so."""

    worker_id: int
    job_id: int
    since: float
    formed: float
    until: float


class Evidence:
    """All jobs, by their ids; all leases, and those of each run, by rank."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url, row_factory=dict_row) as connection:
            self.jobs: dict[int, Row] = {row["id"]: row for row in _rows(connection, JOBS)}
            self.leases = _rows(connection, LEASES)
            self.left: list[str] = [row["what"] for row in _rows(connection, LEFT)]
            self._notes = _rows(connection, NOTES)
        self.runs: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for lease in self.leases:
            if self.jobs[lease["job_id"]]["nodes"] > 1:
                self.runs[lease["job_id"], lease["attempt"]].append(lease)

    @property
    def seconds(self) -> float:
        """How long it took until the last job had ended."""
        return max((lease["ended"] for lease in self.leases), default=0.0)

    @cached_property
    def starts(self) -> dict[int, float]:
        """When each job was leased first."""
        found: dict[int, float] = {}
        for lease in self.leases:
            found.setdefault(lease["job_id"], lease["claimed"])
        return found

    def waits(self, nodes: int | None) -> list[float]:
        """Return how long jobs on so many machines waited for them; None: all gangs."""
        return [self.starts[i] - self.jobs[i]["at"] for i in self._started(nodes)]

    def overtaken(self, nodes: int | None) -> list[int]:
        """Return by how many later jobs each of these jobs was overtaken."""
        return [
            sum(other > i and at < self.starts[i] for other, at in self.starts.items())
            for i in self._started(nodes)
        ]

    def gathering(self) -> list[float]:
        """Return how long each member of a run waited for the others once it had prepared."""
        return list(self._from("prepared", "started"))

    def fetching(self) -> list[float]:
        """Return how long each member's lease waited for its worker to fetch it."""
        return [-seconds for seconds in self._from("fetched", "claimed")]

    def kept(self, *, formed: bool = False) -> list[float]:
        """Return how long a place was free in each draft, before the gang formed or after."""
        spans = (
            (one.worker_id, *((one.formed, one.until) if formed else (one.since, one.formed)))
            for one in self._drafts()
        )
        return [self._free(*span) for span in spans]

    def shared(self) -> list[int]:
        """Return the number of shared workers of each two runs at the same time."""
        spans = [(*_span(run), {lease["worker_id"] for lease in run}) for run in self.runs.values()]
        return [
            len(one & other)
            for (began, ended, one), (since, until, other) in combinations(spans, 2)
            if began < until and since < ended
        ]

    def _drafts(self) -> Iterator[Draft]:
        """Return all drafts that are over."""
        since: dict[tuple[int, int], float] = {}
        for note in self._notes:
            key = note["worker_id"], note["job_id"]
            if note["what"] == "drafted":
                since[key] = note["at"]
            elif note["what"] == "freed":
                began, until = since.pop(key), float(note["at"])
                formed = min(max(self.starts.get(key[1], until), began), until)
                yield Draft(*key, began, formed, until)

    def _free(self, worker_id: int, began: float, until: float) -> float:
        """Return for how long a worker had a free place within a span of time."""
        turns = [(began, 0), (until, 0)]
        for lease in self.leases:
            if lease["worker_id"] == worker_id and lease["claimed"] < until:
                turns += [(max(lease["claimed"], began), 1), (max(lease["ended"], began), -1)]
        turns.sort()
        held, free = 0, 0.0
        for (at, change), (later, _) in pairwise(turns):
            held += change
            free += (min(later, until) - at) * (held < PLACES and at < until)
        return free

    def _started(self, nodes: int | None) -> list[int]:
        return [
            i
            for i, job in self.jobs.items()
            if i in self.starts and (job["nodes"] == nodes or (nodes is None and job["nodes"] > 1))
        ]

    def _from(self, what: str, until: str) -> Iterator[float]:
        # Without a second attempt, a worker is in one run of a job at most.
        noted = {
            (note["job_id"], note["worker_id"]): note["at"]
            for note in self._notes
            if note["what"] == what
        }
        for run in self.runs.values():
            for lease in run:
                at = noted.get((lease["job_id"], lease["worker_id"]))
                if at is not None and lease[until] is not None:
                    yield lease[until] - at


def _span(run: list[Row]) -> Span:
    return min(one["claimed"] for one in run), max(one["ended"] for one in run)


def _rows(connection: psycopg.Connection[Row], query: str) -> list[Row]:
    return connection.execute(query.encode()).fetchall()
