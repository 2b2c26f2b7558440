"""An owner's schedules, by name."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.job import Schedule
from forge_schema.schedules.times import INSTANT, Cron

SHOWN = 3


class NoSuchSchedule(ForgeError):
    """The owner has no schedule with this name."""

    code = "schedule_not_found"


class Schedules:
    """The schedules of one owner.

    Args:
        database: an open database.
        owner: whose schedules they are.
        actor: the acting party, for the audit trail.
    """

    def __init__(self, database: Database, *, owner: str, actor: str) -> None:
        self._database = database
        self._owner = owner
        self._actor = actor

    def keep(
        self, name: str, cron: str, spec: Mapping[str, Any], *, timezone: str, overlap: bool
    ) -> Schedule:
        """Store a job under a name, replacing any schedule before, and return the schedule.

        Raises:
            CronInvalid: the expression is wrong or never falls due.
            TimezoneUnknown: there is no such time zone.
        """
        self._database.rows(
            "put_schedule",
            again=True,
            owner=self._owner,
            name=name,
            cron=cron,
            timezone=timezone,
            spec=Jsonb(dict(spec)),
            overlap=overlap,
            next_at=first_time(self._database, cron, timezone),
            actor=self._actor,
        )
        return self.get(name)

    def get(self, name: str) -> Schedule:
        """Return a schedule.

        Raises:
            NoSuchSchedule: there is none with this name.
        """
        return _schedule(self._row(name))

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause a schedule, or resume it. Times that passed while it was paused are left out.

        Raises:
            NoSuchSchedule: there is none with this name.
            CronInvalid: it was paused because it has no more times.
        """
        row = self._row(name)
        self._database.rows(
            "pause_schedule",
            again=True,
            owner=self._owner,
            name=name,
            paused=paused,
            next_at=None if paused else Cron(row["cron"], row["timezone"]).after(row["now"]),
            actor=self._actor,
        )

    def remove(self, name: str) -> None:
        """Remove a schedule. The jobs that it has submitted stay.

        Raises:
            NoSuchSchedule: there is none with this name.
        """
        removed = self._database.one(
            "delete_schedule", owner=self._owner, name=name, actor=self._actor
        )
        if removed is None:
            raise self._unknown(name)

    def _row(self, name: str) -> Row:
        row = self._database.one("schedules", again=True, owner=self._owner, name=name)
        if row is None:
            raise self._unknown(name)
        return row

    def _unknown(self, name: str) -> NoSuchSchedule:
        return NoSuchSchedule(
            f"{self._owner} has no schedule {name!r}", hint="`forge schedule list` lists them"
        )


def first_time(database: Database, cron: str, timezone: str) -> datetime:
    """Return the next time of a cron expression.

    Raises:
        CronInvalid: the expression is wrong or never falls due.
        TimezoneUnknown: there is no such time zone.
    """
    times = Cron(cron, timezone)
    clock = database.one("clock", again=True)
    assert clock is not None  # noqa: S101 - the statement selects one row always
    return times.after(clock["now"])


def listed(database: Database, owner: str | None) -> list[Schedule]:
    """Return the schedules of an owner or of all, by name."""
    rows = database.rows("schedules", again=True, owner=owner, name=None)
    return [_schedule(row) for row in rows]


def _schedule(row: Row) -> Schedule:
    return Schedule.model_validate({**row, "next_times": _next_times(row)})


def _next_times(row: Row) -> list[datetime]:
    try:
        times = Cron(row["cron"], row["timezone"])
    except ForgeError:
        return []  # this machine does not know the time zone; `error` says so
    if row["paused"] or row["next_at"] > row["now"]:
        return times.following(row["now"], SHOWN)
    # A time that is due stays the next one until a sweeper has handled it.
    due = times.following(row["next_at"] - INSTANT, 1)
    return due + times.following(row["now"], SHOWN - 1)
