"""Lanes, the unit of matching, and what they consist of: shapes, queues and owners."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import Target


class Lane(SQLModel, table=True):
    """A row for each owner, queue and shape of jobs: a claim looks at the heads of some lanes.

    `paused` is true if the queue or the owner is paused, and `limited` if either has a limit, so
    that a claim reads only the lane.
    """

    __table_args__ = (
        ForeignKeyConstraint(["shape_id"], ["shape.id"], name="lane_shape"),
        ForeignKeyConstraint(["queue"], ["queue.name"], name="lane_queue"),
        ForeignKeyConstraint(["owner"], ["owner_quota.owner"], name="lane_owner"),
        UniqueConstraint("shape_id", "queue", "owner", name="lane_distinct"),
    )

    id: int = c.identity(big=False)
    shape_id: int = c.integer()
    queue: str = c.string()
    owner: str = c.string()
    paused: bool = c.flag()
    limited: bool = c.flag()


class Shape(SQLModel, table=True):
    """What a worker must have for a job: devices, CPU, memory, labels, location.

    CPUs or memory of 0 request a share of the worker; `forge_lent` computes it. A job on several
    `nodes` needs all of it of each.
    """

    __table_args__ = (
        UniqueConstraint(
            "accelerator",
            "gpus",
            "gpu_model",
            "vram_mb",
            "cpus",
            "memory_mb",
            "disk_mb",
            "labels",
            "nodes",
            "target",
            name="shape_distinct",
        ),
        CheckConstraint("gpus >= 0 AND vram_mb >= 0", name="devices_not_negative"),
        CheckConstraint("cpus > 0 OR (cpus = 0 AND gpus > 0)", name="cpus_positive"),
        CheckConstraint("memory_mb >= 0", name="memory_not_negative"),
        CheckConstraint("disk_mb > 0", name="disk_positive"),
        CheckConstraint("nodes >= 1", name="nodes_positive"),
        CheckConstraint("jsonb_typeof(labels) = 'object'", name="labels_object"),
        Index("shape_gang", "id", postgresql_where=text("nodes > 1")),
    )

    id: int = c.identity(big=False)
    accelerator: str = c.string(default="'any'")
    gpus: int = c.small(default="0")
    gpu_model: str = c.string(default="'*'")
    vram_mb: int = c.integer(default="0")
    cpus: float = c.number(default="1")
    memory_mb: int = c.integer(default="1024")
    disk_mb: int = c.integer(default="10240")
    labels: dict[str, Any] = c.document(default="'{}'")
    nodes: int = c.small(default="1")
    target: Target = c.word(Target, default="'auto'")


class Queue(SQLModel, table=True):
    """A queue. A limit of NULL means no limit.

    With the `preemption` `higher-priority`, jobs that have run for `preempts_after_s` leave for
    waiting ones of a higher priority, at most `most_preempted` at once; see `forge_displace`. For
    a while, only jobs as urgent as the one that they leave for take slots of its limits. Others
    leave for jobs of a queue, owner or team within their `guaranteed_gpus`.
    """

    __table_args__ = (
        CheckConstraint("guaranteed_gpus >= 0", name="guarantee_not_negative"),
        CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="limits_not_negative"),
        CheckConstraint("preemption IN ('never', 'higher-priority')", name="preemption_known"),
        CheckConstraint("preempts_after_s >= 0 AND most_preempted >= 1", name="preemption_bounds"),
    )

    name: str = c.key_string()
    paused: bool = c.flag()
    max_jobs: int | None = c.integer(null=True)
    max_gpus: int | None = c.integer(null=True)
    guaranteed_gpus: int | None = c.integer(null=True)
    preemption: str = c.string(default="'never'")
    preempts_after_s: int = c.integer(default="60")
    most_preempted: int = c.integer(default="4")
    yields_for: int | None = c.big(null=True)
    yields_to: int | None = c.small(null=True)
    yields_until: datetime | None = c.moment(null=True)


class Team(SQLModel, table=True):
    """A team of owners and its limits, of all of them together; an owner is in one at most.

    While its budget of the month is spent, since `spent_at`, its owners are paused.
    """

    __table_args__ = (
        CheckConstraint("guaranteed_gpus >= 0", name="team_guarantee_not_negative"),
        CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="team_limits_not_negative"),
        CheckConstraint(
            "gpu_hours_per_month >= 0 AND cost_per_month >= 0", name="team_budgets_not_negative"
        ),
        CheckConstraint("when_spent IN ('warn', 'hold', 'preempt')", name="team_when_spent_known"),
    )

    name: str = c.key_string()
    created_at: datetime = c.moment()
    max_jobs: int | None = c.integer(null=True)
    max_gpus: int | None = c.integer(null=True)
    guaranteed_gpus: int | None = c.integer(null=True)
    gpu_hours_per_month: float | None = c.number(null=True)
    cost_per_month: float | None = c.number(null=True)
    when_spent: str = c.string(default="'hold'")
    spent_at: datetime | None = c.moment(null=True)


class OwnerQuota(SQLModel, table=True):
    """An owner's limits (NULL means none) and weight. Twice the weight is twice the share.

    A request that may spend more GPU-hours or more money than `approve_…` waits for an approval.
    An owner is `paused` while the budget of the month, or that of the team, is spent, unless that
    is only to be told. `by_issuer` is whether single sign-on, and no admin, said which `team`.
    """

    __tablename__ = "owner_quota"
    __table_args__ = (
        CheckConstraint("guaranteed_gpus >= 0", name="guarantee_not_negative"),
        CheckConstraint("max_jobs >= 0 AND max_gpus >= 0", name="limits_not_negative"),
        CheckConstraint("weight > 0", name="weight_positive"),
        CheckConstraint(
            "approve_gpu_hours >= 0 AND approve_cost >= 0", name="approvals_not_negative"
        ),
        CheckConstraint(
            "gpu_hours_per_month >= 0 AND cost_per_month >= 0", name="budgets_not_negative"
        ),
        CheckConstraint("when_spent IN ('warn', 'hold', 'preempt')", name="when_spent_known"),
        ForeignKeyConstraint(["team"], ["team.name"], name="owner_team", ondelete="SET NULL"),
    )

    owner: str = c.key_string()
    team: str | None = c.string(null=True)
    by_issuer: bool = c.flag()
    paused: bool = c.flag()
    max_jobs: int | None = c.integer(null=True)
    max_gpus: int | None = c.integer(null=True)
    guaranteed_gpus: int | None = c.integer(null=True)
    weight: float = c.number(default="1")
    approve_gpu_hours: float | None = c.number(null=True)
    approve_cost: float | None = c.number(null=True)
    gpu_hours_per_month: float | None = c.number(null=True)
    cost_per_month: float | None = c.number(null=True)
    when_spent: str = c.string(default="'hold'")


class Spending(SQLModel, table=True):
    """What an owner with a budget, or whose team has one, used in the month of `settled_at` (UTC).

    `settled_…` is what attempts used that ended until `settled_at`, which a removal of old jobs
    does not change; the rest is counted anew each time. `spent_at` is since when no budget is left.
    """

    owner: str = c.key_string()
    settled_at: datetime = c.moment()
    settled_gpu_hours: float = c.number()
    settled_cost: float = c.number()
    gpu_hours: float = c.number()
    cost: float = c.number()
    spent_at: datetime | None = c.moment(null=True)


class OwnerUsage(SQLModel, table=True):
    """How much an owner has had, in GPU-seconds divided by the owner's weight.

    Only differences between owners count. `at` is when the owner was last seen with jobs that run
    or wait. The table is unlogged: after a crash of the database, all owners begin as equals.
    """

    __tablename__ = "owner_usage"
    __table_args__ = ({"prefixes": ["UNLOGGED"], "postgresql_with": {"fillfactor": 50}},)

    owner: str = c.key_string()
    level: float = c.number()
    at: datetime = c.moment()
