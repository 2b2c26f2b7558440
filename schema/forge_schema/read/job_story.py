"""The data of one job's page; every list is bounded."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from forge_schema.database.pool import Database, Row
from forge_schema.model.job import with_shares
from forge_schema.model.spec import GANG_NETWORK, HANDLERS, RUNS, SECRET

RUNS_SHOWN = 100
EVENTS_SHOWN = 100
BUNDLES_SHOWN = 20
# Labels that the queue itself adds to a shape, or begins their names with.
OWN_LABELS = (RUNS, HANDLERS, GANG_NETWORK, SECRET)


class JobStory:
    """Reads the data of one job, which the caller must be allowed to see."""

    def __init__(self, database: Database, job_id: int) -> None:
        self._database = database
        self._job_id = job_id

    def runs(self) -> list[Row]:
        """Return the newest attempts, oldest first; `finished_at` is None while one runs."""
        return self._rows("job_runs", count=RUNS_SHOWN)

    @staticmethod
    def ran_s(runs: Iterable[Row]) -> float:
        """Return how long the program has run, in all these attempts."""
        began = [run for run in runs if run["started_at"] and run["rank"] == 0]
        spans = [(run["finished_at"] or run["now"]) - run["started_at"] for run in began]
        return sum(spans, timedelta()).total_seconds()

    def spent(self) -> Row:
        """Return the `cost` and the `gpu_seconds` of all ended attempts."""
        (row,) = self._rows("job_spent")
        return row

    def events(self) -> list[Row]:
        """Return the job's events, newest first."""
        return self._rows("events", count=EVENTS_SHOWN)

    def artifacts(self, *, after: str = "", count: int) -> list[Row]:
        """Return artifacts after a path, ordered by path."""
        return self._rows("page_artifacts", after=after, count=count)

    def artifact(self, path: str) -> Row | None:
        """Return the artifact with a path, or None."""
        rows = self._rows("artifact", path=path)
        return rows[0] if rows else None

    def checkpoint(self, attempt: int, number: int) -> list[Row]:
        """Return the `rank` and the `key` of each part of a complete checkpoint."""
        return self._rows("checkpoint_parts", attempt=attempt, number=number)

    def asked(self) -> dict[str, Any]:
        """Return the fields of `JobSpec` that submit the same job again, without its owner."""
        (row,) = self._rows("job_asked")
        labels = {
            name: value for name, value in row["labels"].items() if not name.startswith(OWN_LABELS)
        }
        fields = {name: row[name] for name in row if name not in {"spec", "owner"}}
        return {
            **fields,
            **with_shares(row["spec"], {}),
            "labels": labels,
            "kind": str(row["kind"]),
        }

    def _rows(self, name: str, **params: object) -> list[Row]:
        return self._database.rows(name, again=True, job_id=self._job_id, **params)


def recent_bundles(database: Database, owner: str) -> list[Row]:
    """Return the bundles of an owner's newest jobs, each with the `job_id` and `name` of one."""
    return database.rows("recent_bundles", again=True, owner=owner, count=BUNDLES_SHOWN)
