"""The jobs of one benchmark, by the name of their sweep: how they stand, what they found."""

from collections import Counter

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.queue.job_acts import JobActs
from forge_schema.read.jobs import PAGE


class SweepUnknown(ForgeError):
    """The owner has no job of this sweep."""

    code = "sweep_unknown"


class Benchmarks:
    """An owner's sweeps."""

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def states(self, sweep: str) -> dict[str, int]:
        """Return how many of its jobs are in which state.

        Raises:
            SweepUnknown: it has none.
        """
        rows = self._database.rows("sweep_states", again=True, owner=self._owner, sweep=sweep)
        if not rows:
            raise self._unknown(sweep)
        return {row["state"]: row["jobs"] for row in rows}

    def points(self, sweep: str, *, after: int = 0, count: int = PAGE) -> list[Row]:
        """Return its jobs after an id: what each was given, and what it found.

        Raises:
            SweepUnknown: it has none.
        """
        rows = self._database.rows(
            "sweep_points",
            again=True,
            owner=self._owner,
            sweep=sweep,
            after=after,
            count=min(count, PAGE),
        )
        if not rows and not after:
            raise self._unknown(sweep)
        return rows

    def cancel(self, sweep: str) -> dict[str, int]:
        """Cancel what has not ended; return how many it was, and how many still run.

        Raises:
            SweepUnknown: it has no jobs.
        """
        self.states(sweep)
        ids = self._database.rows("sweep_unfinished", again=True, owner=self._owner, sweep=sweep)
        acts = JobActs(self._database, owner=self._owner, actor=self._actor)
        rows = acts.cancel_each([row["id"] for row in ids])
        became = Counter(row["became"] for row in rows.values())
        return {name: became[name] for name in ("cancelled", "running")}

    def _unknown(self, sweep: str) -> SweepUnknown:
        return SweepUnknown(
            f"{self._owner} has no sweep {sweep!r}",
            hint="`forge benchmark` said its name when it submitted it",
        )
