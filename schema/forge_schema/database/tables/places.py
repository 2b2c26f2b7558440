"""The thin tables: an unfinished job is in exactly one of ready, scheduled, held and lease.

One that runs under limits also holds their slots; one whose sweep has a cap holds a turn.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Index, Sequence, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import Asked, Phase

# The thin tables change all the time: vacuum them by row count, not by proportion.
EAGER_VACUUM = {
    "autovacuum_vacuum_scale_factor": 0,
    "autovacuum_vacuum_threshold": 1000,
    "autovacuum_analyze_scale_factor": 0,
    "autovacuum_analyze_threshold": 10000,
    "autovacuum_vacuum_cost_delay": 0,
}


class Ready(SQLModel, table=True):
    """Jobs to claim now. `nice` is the negated priority, so one ascending index orders them."""

    __table_args__ = ({"postgresql_with": EAGER_VACUUM},)

    lane_id: int = c.key_integer()
    nice: int = c.key_small()
    job_id: int = c.key_big()
    attempt: int = c.small(default="0")
    failures: int = c.small(default="0")
    losses: int = c.small(default="0")
    preemptions: int = c.small(default="0")
    ready_at: datetime = c.moment()
    # When a worker first passed the job by, since it did not fit; see `Backfill`.
    passed_at: datetime | None = c.moment(null=True)
    # What its worker must have or fetch; see `forge_parts`.
    parts: list[int] | None = c.integers(null=True)
    # Workers that may not claim it at once, since it failed there; see `forge_avoids`.
    avoids: list[int] | None = c.bigs(null=True)


class Scheduled(SQLModel, table=True):
    """Jobs that may not be claimed before `run_at`: delayed or backing off."""

    __table_args__ = (
        Index("scheduled_due", "run_at"),
        {"postgresql_with": EAGER_VACUUM},
    )

    job_id: int = c.key_big()
    lane_id: int = c.integer()
    nice: int = c.small()
    attempt: int = c.small(default="0")
    failures: int = c.small(default="0")
    losses: int = c.small(default="0")
    preemptions: int = c.small(default="0")
    run_at: datetime = c.moment()
    avoids: list[int] | None = c.bigs(null=True)


class Held(SQLModel, table=True):
    """Jobs that wait for something other than a time: other jobs, an approval, or a turn.

    `line` is the owner and the sweep if only `parallel` jobs of the sweep may have a turn at once.
    `approval` is what an admin has to approve; see `forge_ask`.
    """

    __table_args__ = (
        CheckConstraint("(line IS NULL) = (parallel IS NULL)", name="line_whole"),
        CheckConstraint("parallel >= 1", name="parallel_positive"),
        CheckConstraint("jsonb_typeof(approval) = 'object'", name="approval_object"),
        Index("held_approval", "job_id", postgresql_where=text("approval IS NOT NULL")),
        Index("held_line", "line", "job_id", postgresql_where=text("line IS NOT NULL")),
        {"postgresql_with": EAGER_VACUUM},
    )

    job_id: int = c.key_big()
    lane_id: int = c.integer()
    nice: int = c.small()
    attempt: int = c.small(default="0")
    line: str | None = c.string(null=True)
    parallel: int | None = c.small(null=True)
    approval: dict[str, Any] | None = c.document(null=True)


class Turn(SQLModel, table=True):
    """A job of a sweep with a cap that has left `held` and has not ended."""

    __table_args__ = (
        Index("turn_line", "line"),
        {"postgresql_with": EAGER_VACUUM},
    )

    job_id: int = c.key_big()
    line: str = c.string()


class SweepCap(SQLModel, table=True):
    """How many jobs of a sweep may have a turn at once, where that was changed after a submit.

    It overrides `parallel` of all its jobs, those that are submitted or retried later too.
    """

    __tablename__ = "sweep_cap"
    __table_args__ = (CheckConstraint("parallel >= 1", name="cap_positive"),)

    line: str = c.key_string()
    parallel: int = c.small()


class Lease(SQLModel, table=True):
    """A running job and rank. No column that a heartbeat writes is in an index.

    A gang, a job on several `nodes`, has one for each member of its run; they share the attempt.
    `member` is what a member told the others, `step` how far it has come: 0 preparing, 1 prepared,
    2 reachable. `over` is how it ended; its lease stays until all members have ended.
    """

    __table_args__ = (
        # The one statement that grants leases computes the rest. Each CHECK would cost it 2 %.
        CheckConstraint("progress BETWEEN 0 AND 1", name="progress_is_share"),
        Index("lease_gang", "worker_id", postgresql_where=text("nodes > 1")),
        {"postgresql_with": {"fillfactor": 50, **EAGER_VACUUM}},
    )

    job_id: int = c.key_big()
    rank: int = c.key_small()
    token: int = c.big(default="nextval('lease_token')")
    nonce: UUID = c.uuid(default="gen_random_uuid()")
    worker_id: int = c.big()
    lane_id: int = c.integer()
    nice: int = c.small()
    attempt: int = c.small()
    failures: int = c.small()
    losses: int = c.small()
    preemptions: int = c.small()
    ready_at: datetime = c.moment()
    claimed_at: datetime = c.moment()
    started_at: datetime | None = c.moment(null=True)
    deadline_at: datetime | None = c.moment(null=True)
    expires_at: datetime = c.moment()
    phase: Phase = c.word(Phase, default="'claimed'")
    progress: float | None = c.number(null=True)
    metrics: int = c.integer(default="0")
    samples: int = c.integer(default="0")
    asked: Asked | None = c.word(Asked, null=True)
    devices: list[str] = c.strings(default="'{}'")
    # Set by the sweeper's next tick after the job was asked to end.
    asked_at: datetime | None = c.moment(null=True)
    nodes: int = c.small(default="1")
    member: dict[str, Any] | None = c.document(null=True)
    step: int = c.small(default="0")
    over: dict[str, Any] | None = c.document(null=True)


class Slot(SQLModel, table=True):
    """A place that a limit gives to one job, or to one of its GPUs.

    `job_id` is the job that holds it. `kind` tells whose limit it is, of what; `name` is the queue,
    the owner or the team. A limit of three has the slots 1 to 3. After it was lowered, jobs that
    still run hold slots above it.
    """

    __table_args__ = (
        CheckConstraint(
            "kind IN ('queue_jobs', 'queue_gpus', 'owner_jobs', 'owner_gpus', 'team_jobs',"
            " 'team_gpus')",
            name="slot_kind",
        ),
        Index("slot_free", "kind", "name", "n", postgresql_where=text("job_id IS NULL")),
        Index("slot_taken", "job_id", postgresql_where=text("job_id IS NOT NULL")),
        {"postgresql_with": {"fillfactor": 50, **EAGER_VACUUM}},
    )

    kind: str = c.key_string()
    name: str = c.key_string()
    n: int = c.key_integer()
    job_id: int | None = c.big(null=True)


LEASE_TOKEN = Sequence("lease_token", metadata=SQLModel.metadata, data_type=BigInteger)


class Forming(SQLModel, table=True):
    """The one gang of each pool that machines are drafted for, and those that had their turn.

    A pool is the kind of accelerator that the gang wants. A gang that did not form by the
    `deadline` rests for as long as machines were kept for it; its next turn is twice as long.
    Jobs that end by `expected_at` may run on these machines. One whose run was asked to end so that
    it `grows` goes on with so many machines.
    """

    __table_args__ = (
        CheckConstraint("deadline > since", name="deadline_after_since"),
        CheckConstraint("turns >= 1", name="turns_positive"),
        CheckConstraint("grows > 2", name="grows_beyond_least"),
        CheckConstraint("expected_at < deadline", name="expected_before_deadline"),
        Index("forming_pool", "pool", unique=True, postgresql_where=text("rests_until IS NULL")),
    )

    job_id: int = c.key_big()
    pool: str = c.string()
    lane_id: int = c.integer()
    nice: int = c.small()
    since: datetime = c.moment()
    deadline: datetime = c.moment()
    turns: int = c.small(default="1")
    rests_until: datetime | None = c.moment(null=True)
    grows: int | None = c.small(null=True)
    expected_at: datetime | None = c.moment(null=True)


class Draft(SQLModel, table=True):
    """A worker that keeps room for a gang, until then at most; it takes only jobs beside it."""

    worker_id: int = c.key_big()
    job_id: int = c.big()
    lane_id: int = c.integer()
    nice: int = c.small()
    until: datetime = c.moment()
