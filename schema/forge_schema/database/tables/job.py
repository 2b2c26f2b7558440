"""A job: its request and its outcome."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import JobKind, Reason, State


class Job(SQLModel, table=True):
    """Written once, at submission. The job's current place is a row in a thin table."""

    __table_args__ = (
        Index(
            "job_idempotency",
            "owner",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index("job_sweep", "owner", "sweep", "id", postgresql_where=text("sweep IS NOT NULL")),
        Index(
            "job_experiment",
            "owner",
            "experiment",
            "id",
            postgresql_where=text("experiment IS NOT NULL"),
        ),
        # Lanes are few, so the newest jobs of an owner, a queue or a label are found lane by lane.
        Index("job_lane_newest", "lane_id", "id"),
        # Reports are bounded by times and days, and jobs are inserted in this order.
        Index("job_days", "submitted_at", c.day("submitted_at"), postgresql_using="brin"),
        CheckConstraint("bundle_digest ~ '^[0-9a-f]{64}$'", name="bundle_digest_sha256"),
        CheckConstraint(
            "least(max_failures, max_losses, max_preemptions) >= 0", name="budgets_not_negative"
        ),
        CheckConstraint("timeout_s > 0", name="timeout_positive"),
        CheckConstraint("backoff_s >= 0", name="backoff_not_negative"),
        # Finds the unfinished jobs that still need a checkpoint to start from.
        Index("job_source", "source_job_id", postgresql_where=text("source_job_id IS NOT NULL")),
        CheckConstraint(
            "num_nulls(source_job_id, source_token, source_number) IN (0, 3)", name="source_whole"
        ),
        CheckConstraint(
            "(idempotency_key IS NULL) = (content_digest IS NULL)", name="idempotency_whole"
        ),
    )

    id: int = c.identity()
    lane_id: int = c.integer()
    owner: str = c.string()
    name: str = c.string()
    nice: int = c.small(default="0")
    spec: dict[str, Any] = c.document()
    bundle_digest: str | None = c.string(null=True)
    idempotency_key: str | None = c.string(null=True)
    # Empty if the job asked for no key, and got one of its own.
    content_digest: str | None = c.string(null=True)
    max_failures: int = c.small(default="3")
    max_losses: int = c.small(default="5")
    max_preemptions: int = c.small(default="50")
    backoff_s: int = c.integer(default="10")
    timeout_s: int | None = c.integer(null=True)
    run_at: datetime | None = c.moment(null=True)
    submitted_at: datetime = c.moment()
    # The audit trail's entry. A version that stored it as an event left this empty.
    submitted_by: str | None = c.string(null=True)
    kind: JobKind = c.word(JobKind, default="'command'")
    sweep: str | None = c.string(null=True)
    source_job_id: int | None = c.big(null=True)
    source_token: int | None = c.big(null=True)
    source_number: int | None = c.integer(null=True)
    experiment: str | None = c.string(null=True)


class Annotation(SQLModel, table=True):
    """What people keep about a job: a note, and whether lists leave it out."""

    __table_args__ = (Index("annotation_archived", "job_id", postgresql_where=text("archived")),)

    job_id: int = c.key_big()
    note: str | None = c.string(null=True)
    archived: bool = c.flag(default="false")


class JobTag(SQLModel, table=True):
    """A tag of a job, with the job's owner, whose newest jobs with the tag an index finds."""

    __tablename__ = "job_tag"
    __table_args__ = (Index("job_tag_newest", "owner", "tag", "job_id"),)

    job_id: int = c.key_big()
    tag: str = c.key_string()
    owner: str = c.string()


class Outcome(SQLModel, table=True):
    """How a job ended. Its primary key is the job's id: no job can have two accepted results.

    `token` and `nonce` are those of the lease that ended it. A job cancelled while
    it waited has neither. A success of a single machine is its attempt too, with the columns from
    `worker_id` on; a trigger refuses its change, and its removal as long as its job stays.

    `forge_job_ended` refuses impossible rows. CHECKs did: at each statement, Postgres reads them
    anew from text, which was a sixth of the work of a claim that finishes one job.
    """

    __table_args__ = (
        # As for `attempt_row`.
        Index(
            "outcome_times",
            "finished_at",
            "claimed_at",
            c.day("finished_at"),
            c.day("claimed_at"),
            postgresql_using="brin",
        ),
        Index(
            "outcome_worker",
            "worker_id",
            "finished_at",
            postgresql_where=text("worker_id IS NOT NULL"),
        ),
        # Most jobs succeed, and those are found by their ids.
        Index(
            "outcome_unsuccessful",
            "reason",
            "job_id",
            postgresql_where=text("state <> 'succeeded'"),
        ),
    )

    job_id: int = c.key_big()
    state: State = c.word(State)
    reason: Reason = c.word(Reason)
    attempt: int = c.small()
    token: int | None = c.big(null=True)
    nonce: UUID | None = c.uuid(null=True)
    exit_code: int | None = c.integer(null=True)
    detail: str | None = c.string(null=True)
    finished_at: datetime = c.moment()
    worker_id: int | None = c.big(null=True)
    lane_id: int | None = c.integer(null=True)
    ready_at: datetime | None = c.moment(null=True)
    claimed_at: datetime | None = c.moment(null=True)
    started_at: datetime | None = c.moment(null=True)
    checkpoint_at: datetime | None = c.moment(null=True)
    devices: list[str] | None = c.strings(null=True)
    gpu_seconds: float | None = c.number(null=True)
    energy_j: float | None = c.number(null=True)
    cost: float | None = c.number(null=True)
    cpu_seconds: float | None = c.number(null=True)
    peak_memory_mb: int | None = c.integer(null=True)
    peak_vram_mb: int | None = c.integer(null=True)
