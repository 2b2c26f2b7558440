"""A database with a history as the read queries see it, with some notable jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_schema.read.audit import Audit
from forge_schema.read.fleet import Fleet
from forge_schema.read.jobs import Jobs

if TYPE_CHECKING:
    from forge_schema.database.pool import Database
    from support.past.history import Past

# Reads by primary key, or of a few rows from one end: cheap, whatever the table holds.
FOUND = {
    "newest": "SELECT job_id FROM outcome WHERE state = 'succeeded' ORDER BY job_id DESC LIMIT 1",
    "oldest": "SELECT min(job_id) AS job_id FROM outcome",
    # The job with a lot of output; see past/08_stored.sql.
    "long": (
        "SELECT job_id FROM outcome WHERE job_id % 50 = 0 AND token IS NOT NULL"
        " ORDER BY job_id DESC LIMIT 1"
    ),
    "ready": "SELECT max(job_id) AS job_id FROM ready",
    "stuck": "SELECT min(job_id) AS job_id FROM ready",
    "running": "SELECT max(job_id) AS job_id FROM lease",
    "scheduled": "SELECT max(job_id) AS job_id FROM scheduled",
    "often": "SELECT job_id FROM outcome WHERE attempt = 6 ORDER BY job_id DESC LIMIT 1",
}


@dataclass
class World:
    """The calls to make and their jobs, selected by a key of `FOUND`."""

    database: Database
    past: Past
    jobs_by: dict[str, int]
    worker_id: int
    former_id: int

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.database)

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.database)

    @property
    def audit(self) -> Audit:
        return Audit(self.database)

    @property
    def ids(self) -> list[int]:
        return list(self.jobs_by.values())

    @property
    def middle(self) -> int:
        """The id of a job in the middle of the history."""
        return self.past.jobs // 2


def world(database: Database, past: Past) -> World:
    """Find the jobs."""
    with database.reporting() as connection:
        found = {
            word: connection.execute(query).fetchall()[0]["job_id"] for word, query in FOUND.items()
        }
        (held,) = connection.execute("SELECT min(worker_id) AS id FROM lease").fetchall()
        (former,) = connection.execute("SELECT max(id) AS id FROM former_worker").fetchall()
    return World(database, past, found, held["id"], former["id"])
