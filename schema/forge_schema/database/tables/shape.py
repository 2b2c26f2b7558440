"""A shape: a distinct set of requirements, stored once for all jobs that have it."""

from typing import Any

from sqlalchemy import CheckConstraint, UniqueConstraint
from sqlmodel import SQLModel

from forge_schema.database.tables import columns as c
from forge_schema.model.states import Target


class Shape(SQLModel, table=True):
    """What a worker must have for a job: devices, CPU, memory, labels, location.

    CPUs or memory of 0 request a share of the worker; `forge_lent` computes it.
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
