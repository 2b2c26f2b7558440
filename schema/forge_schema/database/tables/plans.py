"""Templates, cron schedules and dependencies of jobs."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import DependencyKind


class Template(SQLModel, table=True):
    """A named job config of an owner."""

    owner: str = c.key_string()
    name: str = c.key_string()
    spec: dict[str, Any] = c.document()
    updated_at: datetime = c.moment()


class Schedule(SQLModel, table=True):
    """A job submitted repeatedly by a cron schedule; `last_…` and `error` tell of its last time.

    `actor` kept or resumed it last.
    """

    __table_args__ = (
        UniqueConstraint("owner", "name", name="schedule_name"),
        ForeignKeyConstraint(["last_job_id"], ["job.id"], name="schedule_last_job"),
        CheckConstraint(
            "last_due_at IS NOT NULL OR num_nonnulls(last_job_id, error) = 0",
            name="last_of_schedule",
        ),
        # For its foreign key, when a job is removed.
        Index("schedule_last", "last_job_id", postgresql_where=text("last_job_id IS NOT NULL")),
        Index("schedule_due", "next_at", postgresql_where=text("NOT paused")),
    )

    id: int = c.identity(big=False)
    owner: str = c.string()
    name: str = c.string()
    actor: str = c.string(default="'user:'")
    cron: str = c.string()
    timezone: str = c.string(default="'UTC'")
    spec: dict[str, Any] = c.document()
    paused: bool = c.flag()
    next_at: datetime = c.moment()
    overlap: bool = c.flag(default="true")
    last_due_at: datetime | None = c.moment(null=True)
    last_job_id: int | None = c.big(null=True)
    error: str | None = c.string(null=True)


class Dependency(SQLModel, table=True):
    """An edge of a job graph: `job_id` waits for `needs_id`.

    `met` is null while it waits, then whether the other job began or ended as `kind` says.
    """

    __table_args__ = (
        ForeignKeyConstraint(["job_id"], ["job.id"], name="dependency_job"),
        ForeignKeyConstraint(["needs_id"], ["job.id"], name="dependency_needs"),
        CheckConstraint("job_id <> needs_id", name="no_self_dependency"),
        # For its foreign key, when a job is removed.
        Index("dependency_needed", "needs_id"),
        Index("dependency_unsettled", "needs_id", postgresql_where=text("met IS NULL")),
    )

    job_id: int = c.key_big()
    needs_id: int = c.key_big()
    kind: DependencyKind = c.word(DependencyKind)
    met: bool | None = c.maybe()
