"""The figures of a run: one JSON line, and a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import psycopg
from forge_schema.storage.manifest import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

STATES = "SELECT state, count(*) FROM job_status GROUP BY state ORDER BY 2 DESC"
REASONS = "SELECT reason, count(*) FROM attempt GROUP BY reason ORDER BY 2 DESC"
GROWN = "SELECT count(*) FROM event WHERE action = 'asked to grow'"
LARGE = f"SELECT count(*) FROM checkpoint WHERE bytes > {CHUNK_BYTES}"
RESUMED = f"""
    SELECT count(*) FROM attempt
    WHERE started_at IS NOT NULL AND EXISTS (
        SELECT FROM checkpoint AS earlier
        WHERE earlier.job_id = attempt.job_id AND earlier.attempt < attempt.attempt
            AND bytes > {CHUNK_BYTES}
    )
"""
URGENT = "SELECT action, count(*) FROM event WHERE action = ANY(%s) GROUP BY action"
LOOKED_AT = ["displaced", "suspected", "trusted", "budget spent"]
FETCHED = """
    SELECT count(*) FROM outcome JOIN job ON job.id = job_id
    WHERE state = 'succeeded' AND spec ? 'inputs'
"""
SCHEDULED = "SELECT count(*) FROM job WHERE idempotency_key LIKE 'schedule:%'"
Counts = dict[str, int]


@dataclass
class Figures:
    """Counts; `cancelled_at_the_end` jobs were cancelled because they took too long.

    `scheduled` jobs were submitted by schedules; `grown` runs were asked to go on with more
    machines. `large` checkpoints were in chunks when all was at rest; `resumed` attempts began
    after one of their job was stored. `fetched` jobs succeeded with inputs.
    """

    seed: int
    minutes: float
    workers: int
    jobs: int = 0
    scheduled: int = 0
    grown: int = 0
    large: int = 0
    resumed: int = 0
    fetched: int = 0
    urgent: Counts = field(default_factory=dict)
    cancelled_at_the_end: int = 0
    states: Counts = field(default_factory=dict)
    attempts: int = 0
    reasons: Counts = field(default_factory=dict)
    faults: int = 0
    struck: Counts = field(default_factory=dict)
    missed: Counts = field(default_factory=dict)
    answers_lost: Counts = field(default_factory=dict)
    restarts: int = 0
    crashes: Counts = field(default_factory=dict)
    failovers: int = 0
    violations: int = 0
    troubles: list[str] = field(default_factory=list)

    def read(self, database_url: str) -> None:
        """Count jobs by state and attempts by reason."""
        with psycopg.connect(database_url) as connection:
            self.states = dict(connection.execute(STATES).fetchall())
            (self.scheduled,) = connection.execute(SCHEDULED).fetchone() or (0,)
            (self.grown,) = connection.execute(GROWN).fetchone() or (0,)
            (self.large,) = connection.execute(LARGE.encode()).fetchone() or (0,)
            (self.resumed,) = connection.execute(RESUMED.encode()).fetchone() or (0,)
            (self.fetched,) = connection.execute(FETCHED).fetchone() or (0,)
            self.urgent = dict(connection.execute(URGENT, (LOOKED_AT,)).fetchall())
            self.reasons = dict(connection.execute(REASONS).fetchall())
        self.jobs, self.attempts = sum(self.states.values()), sum(self.reasons.values())

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def table(self) -> str:
        """Return the figures as a readable table."""
        rows = {
            "seed": self.seed,
            "minutes": f"{self.minutes:.1f}",
            "workers": self.workers,
            "jobs": f"{self.jobs}: {_list(self.states)}",
            "of these, by schedules": self.scheduled,
            "runs asked to grow": self.grown,
            "checkpoints in chunks": f"{self.large}; {self.resumed} attempts began after one",
            "succeeded with inputs": self.fetched,
            "displaced and suspected": _list(self.urgent) or "none",
            "cancelled at the end": self.cancelled_at_the_end,
            "attempts": f"{self.attempts}: {_list(self.reasons)}",
            "faults": f"{self.faults}: {_list(self.struck)}",
            "faults that missed": _list(self.missed) or "none",
            "answers and requests lost": (
                f"{sum(self.answers_lost.values())}: {_list(self.answers_lost)}"
            ),
            "processes started again": self.restarts,
            "crashes": _list(self.crashes) or "none",
            "failovers": self.failovers,
            "troubles of the bed": "; ".join(self.troubles) or "none",
            "violations": self.violations,
        }
        return "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def sum_of(*counts: Mapping[str, int]) -> Counts:
    """Return the sums by name, the largest first."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total.most_common())


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
