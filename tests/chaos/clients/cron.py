"""The schedules of a run: they fire each minute or two, and change all the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.clients.job_mix import LAST, MARK, SMALL
from chaos.dice import dice_of
from forge_schema.schedules import Schedules, listed

if TYPE_CHECKING:
    from chaos.evidence.history import History
    from forge_schema.database.pool import Database
    from forge_schema.model.job import Schedule

ACTOR = "user:chaos"
SPEC = {
    "name": "cron",
    "command": ["sh", "-c", MARK + LAST],
    "resources": SMALL,
    "labels": {"place": "process"},
    "max_losses": 10,
    "backoff_s": 1,
}
# Of a whole run. Those that leave a schedule active are the more frequent.
ACTS = {"keep": 4, "resume": 4, "pause": 2, "remove": 1}


@dataclass(frozen=True)
class Times:
    """A schedule: its cron expression, and its times as seconds of the epoch."""

    name: str
    owner: str
    cron: str = "* * * * *"
    timezone: str = "UTC"
    every_s: int = 60
    first_s: int = 0


# Kathmandu is 5 h 45 min ahead of UTC: its odd minutes are UTC's even ones.
TIMES = (
    Times("minutely-0", "ann"),
    Times("minutely-1", "ann"),
    Times("minutely-2", "ben"),
    Times("odd-minutes", "ben", "1-59/2 * * * *", "Asia/Kathmandu", 120),
)


class ChangingSchedules:
    """Adds schedules, pauses, resumes and removes them, and pauses all of them in the end."""

    def __init__(self, seed: int, history: History, database: Database) -> None:
        self._dice = dice_of(seed, "schedules")
        self._history = history
        self._database = database
        self._missing = list(TIMES)

    def change(self) -> None:
        """Add a schedule, or change one of them at random."""
        if self._missing:
            self._act("keep", self._missing[-1])
            self._missing.pop()
            return
        times = self._dice.choice(TIMES)
        (what,) = self._dice.choices(list(ACTS), list(ACTS.values()))
        self._act(what, times)
        if what == "remove":
            self._missing.append(times)

    def pause_all(self) -> bool:
        """Pause the schedules that have nothing to catch up on; tell whether all are paused."""
        active = [one for one in listed(self._database, None) if not one.paused]
        for one in active:
            if not self._is_due(one):
                self._of(one.owner).pause(one.name, paused=True)
        return not active

    def jobs(self) -> list[int]:
        """Return the unfinished jobs of all schedules."""
        with self._database.connection() as connection:
            rows = connection.execute(
                "SELECT id FROM job WHERE idempotency_key LIKE 'schedule:%'"
                " AND NOT EXISTS (SELECT FROM outcome WHERE job_id = id)"
            ).fetchall()
        return [row["id"] for row in rows]

    def _act(self, what: str, times: Times) -> None:
        schedules = self._of(times.owner)
        if what in {"keep", "resume"}:
            self._history.note(
                "scheduled", name=times.name, every_s=times.every_s, first_s=times.first_s
            )
        if what == "keep":
            schedules.keep(times.name, times.cron, SPEC, timezone=times.timezone, overlap=True)
        elif what == "remove":
            schedules.remove(times.name)
        else:
            schedules.pause(times.name, paused=what == "pause")

    def _is_due(self, schedule: Schedule) -> bool:
        clock = self._database.row("clock", again=True)
        return clock is None or schedule.next_times[0] <= clock["now"]

    def _of(self, owner: str) -> Schedules:
        return Schedules(self._database, owner=owner, actor=ACTOR)
