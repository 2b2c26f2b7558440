"""The jobs of one benchmark, by the name of their sweep: how they stand, what they found."""

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.read.jobs import PAGE

# A job that is between two places at one look is in neither at the next.
LOOKS = 20


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
        cancelled = 0
        for _ in range(LOOKS):
            row = self._database.one(
                "cancel_sweep", again=True, owner=self._owner, sweep=sweep, actor=self._actor
            )
            assert row is not None  # noqa: S101 - the statement selects one row always
            cancelled += row["ended"]
            if row["unfinished"] == row["ended"] + row["running"]:
                return {"cancelled": cancelled, "running": row["running"]}
        raise ForgeError(f"the jobs of {sweep} move too fast to be cancelled", hint="try again")

    def _unknown(self, sweep: str) -> SweepUnknown:
        return SweepUnknown(
            f"{self._owner} has no sweep {sweep!r}",
            hint="`forge benchmark` said its name when it submitted it",
        )
