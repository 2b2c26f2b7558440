"""Templates, cron schedules, dependencies and notifications of jobs."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import UUID as UUID_TYPE
from sqlmodel import Field, SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import DependencyKind


class Template(SQLModel, table=True):
    """A template of an owner."""

    owner: str = c.key_string()
    name: str = c.key_string()
    spec: dict[str, Any] = c.document()
    updated_at: datetime = c.moment()


class RegisteredInput(SQLModel, table=True):
    """The source of an input, under a name that its owner gave it."""

    __tablename__ = "registered_input"

    owner: str = c.key_string()
    name: str = c.key_string()
    source: str = c.string()
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


class Notification(SQLModel, table=True):
    """Whom to tell of which events, and about which jobs: the owner's, a team's or everyone's.

    `target` and `secret` are never shown again. `server` is where the dashboard is, for links.
    After `failures` tries in a row that failed, none but a test is made before `paused_until`.
    `actor` made it, or changed it last; `withheld` is why nothing is sent for this actor any more.
    """

    __table_args__ = (
        UniqueConstraint("owner", "name", name="notification_name"),
        CheckConstraint("kind IN ('webhook', 'slack', 'email')", name="notification_kind"),
        CheckConstraint("team IS NULL OR NOT everyone", name="notification_of_whom"),
    )

    id: int = c.identity(big=False)
    owner: str = c.string()
    name: str = c.string()
    kind: str = c.string()
    target: str = c.string()
    secret: str | None = c.string(null=True)
    events: list[str] = c.strings()
    query: str = c.string(default="''")
    everyone: bool = c.flag()
    server: str | None = c.string(null=True)
    created_at: datetime = c.moment()
    actor: str = c.string(default="''")
    withheld: str | None = c.string(null=True)
    failures: int = c.small(default="0")
    paused_until: datetime | None = c.moment(null=True)
    error: str | None = c.string(null=True)
    team: str | None = c.string(null=True)


class Delivery(SQLModel, table=True):
    """One message of a notification: `new` until it is known whether its query chooses the job.

    `facts` is what was known of the event, `message` what is sent, the same at each try. A claimed
    one is due again at `next_at`, in case its sender dies. A new test's is `-infinity`. Those of
    one `batch` were tried together, in one message.
    """

    __table_args__ = (
        ForeignKeyConstraint(
            ["notification_id"], ["notification.id"], name="delivery_of", ondelete="CASCADE"
        ),
        # Each event is noticed again for a while: a row that was written late is not missed.
        UniqueConstraint(
            "notification_id", "event", "subject", "at", name="delivery_once_per_event"
        ),
        CheckConstraint(
            "state IN ('new', 'waiting', 'sent', 'skipped', 'failed')", name="delivery_state"
        ),
        Index("delivery_new", "notification_id", "id", postgresql_where=text("state = 'new'")),
        Index(
            "delivery_due",
            "notification_id",
            "next_at",
            postgresql_where=text("state = 'waiting'"),
        ),
        Index("delivery_settled", "settled_at", postgresql_where=text("settled_at IS NOT NULL")),
        Index("delivery_failed", "notification_id", postgresql_where=text("state = 'failed'")),
        Index("delivery_skipped", "at", postgresql_where=text("state = 'skipped'")),
        Index("delivery_newest", "at", "id"),
    )

    id: UUID = Field(
        default=None,
        sa_column=Column(
            UUID_TYPE(as_uuid=True), primary_key=True, server_default=text("gen_random_uuid()")
        ),
    )
    notification_id: int = c.integer()
    event: str = c.string()
    # The job, or the worker if the event is one of those.
    subject: int = c.big()
    at: datetime = c.moment()
    state: str = c.string(default="'new'")
    facts: dict[str, Any] = c.document(default="'{}'")
    message: dict[str, Any] | None = c.document(null=True)
    tries: int = c.small(default="0")
    batch: UUID | None = c.uuid(null=True)
    next_at: datetime = c.moment()
    settled_at: datetime | None = c.moment(null=True)
    error: str | None = c.string(null=True)


class Notifier(SQLModel, table=True):
    """How notifications leave. One row, made by the migration.

    Of addresses that are not public, webhooks reach those in the networks `allow`. Events until
    `noticed_at` have been noticed. Of several senders `led_by` sends, and another one after
    `lead_until`.
    """

    __table_args__ = (CheckConstraint("id = 1", name="one_notifier"),)

    id: int = c.key_small()
    smtp_url: str | None = c.string(null=True)
    sender: str | None = c.string(null=True)
    allow: list[str] = c.strings(default="'{}'")
    noticed_at: datetime | None = c.moment(null=True)
    led_by: UUID | None = c.uuid(null=True)
    lead_until: datetime | None = c.moment(null=True)
