"""States and results of a sweep's jobs."""

from collections import Counter

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.stored import PAGE
from forge_schema.queue.cancel_retry import JobActs


class SweepUnknown(ForgeError):
    """The owner has no job in this sweep."""

    code = "sweep_unknown"


class SweepUncapped(ForgeError):
    """No job of the sweep waits for turns."""

    code = "sweep_uncapped"


class Benchmarks:
    """An owner's sweeps."""

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def states(self, sweep: str) -> dict[str, int]:
        """Return the number of a sweep's jobs in each state.

        Raises:
            SweepUnknown: it has no jobs.
        """
        rows = self._database.rows("sweep_states", again=True, owner=self._owner, sweep=sweep)
        if not rows:
            raise self._unknown(sweep)
        return {row["state"]: row["jobs"] for row in rows}

    def points(self, sweep: str, *, after: int = 0, count: int = PAGE) -> list[Row]:
        """Return a sweep's jobs after an id, with parameters and results.

        Raises:
            SweepUnknown: it has no jobs.
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
        """Cancel a sweep's unfinished jobs; return how many were cancelled, and how many still run.

        Raises:
            SweepUnknown: it has no jobs.
        """
        self.states(sweep)
        ids = self._database.rows("sweep_unfinished", again=True, owner=self._owner, sweep=sweep)
        acts = JobActs(self._database, owner=self._owner, actor=self._actor)
        rows = acts.cancel_each([row["id"] for row in ids])
        became = Counter(row["became"] for row in rows.values())
        return {name: became[name] for name in ("cancelled", "running")}

    def set_parallel(self, sweep: str, parallel: int) -> dict[str, int]:
        """Let at most so many of a sweep's jobs have a turn at once; return its `states`.

        Jobs that have a turn keep it. A repeat changes nothing.

        Raises:
            SweepUnknown: it has no jobs.
            SweepUncapped: no job was submitted with a cap, so none waits for a turn.
        """
        rows = self._database.rows(
            "set_parallel",
            again=True,
            owner=self._owner,
            sweep=sweep,
            parallel=parallel,
            actor=self._actor,
        )
        states = self.states(sweep)
        if not rows:
            raise SweepUncapped(
                f"the jobs of the sweep {sweep!r} have no cap, so none of them waits",
                hint="submit a sweep with --parallel to cap it",
            )
        return states

    def _unknown(self, sweep: str) -> SweepUnknown:
        return SweepUnknown(
            f"{self._owner} has no sweep {sweep!r}",
            hint="`forge sweep list` lists the sweeps",
        )
