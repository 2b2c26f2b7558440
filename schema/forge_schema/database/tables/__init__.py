"""The tables as SQLModel models; `metadata` is what the migrations must produce."""

from sqlmodel import SQLModel

from forge_schema.database.tables.attempt import AttemptRow, Event, Result, Sample, TestResult
from forge_schema.database.tables.job import Annotation, Job, JobTag, Outcome
from forge_schema.database.tables.lane import (
    Lane,
    OwnerQuota,
    OwnerUsage,
    Queue,
    Shape,
    Spending,
    Team,
)
from forge_schema.database.tables.places import (
    Draft,
    Forming,
    Held,
    Lease,
    Ready,
    Scheduled,
    Slot,
    SweepCap,
    Turn,
)
from forge_schema.database.tables.plans import (
    Delivery,
    Dependency,
    Notification,
    Notifier,
    RegisteredInput,
    Schedule,
    Template,
)
from forge_schema.database.tables.stored import (
    Artifact,
    Checkpoint,
    LogChunk,
    Metric,
    MetricSpan,
    Upload,
)
from forge_schema.database.tables.sweeper import Identity, SetAside, Sweeper, Thinned, Tombstone
from forge_schema.database.tables.worker import (
    ApiKey,
    FormerWorker,
    Idle,
    RequestNonce,
    Standing,
    Worker,
)

metadata = SQLModel.metadata

__all__ = [
    "Annotation",
    "ApiKey",
    "Artifact",
    "AttemptRow",
    "Checkpoint",
    "Delivery",
    "Dependency",
    "Draft",
    "Event",
    "FormerWorker",
    "Forming",
    "Held",
    "Identity",
    "Idle",
    "Job",
    "JobTag",
    "Lane",
    "Lease",
    "LogChunk",
    "Metric",
    "MetricSpan",
    "Notification",
    "Notifier",
    "Outcome",
    "OwnerQuota",
    "OwnerUsage",
    "Queue",
    "Ready",
    "RegisteredInput",
    "RequestNonce",
    "Result",
    "Sample",
    "Schedule",
    "Scheduled",
    "SetAside",
    "Shape",
    "Slot",
    "Spending",
    "Standing",
    "SweepCap",
    "Sweeper",
    "Team",
    "Template",
    "TestResult",
    "Thinned",
    "Tombstone",
    "Turn",
    "Upload",
    "Worker",
    "metadata",
]
