"""A worker, and whether a GPU of its is of the model that a job wants."""

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import Field

from forge_schema.model.record import Open, Record
from forge_schema.model.states import Command, WorkerKind, WorkerStatus

MAGIC = {"*": ".*", "?": "."}


class WorkerInfo(Record):
    """A worker: what it has, and when it was last heard; memory and disk in MiB.

    `condition` is how its machine was then, and why it is `constrained` if it is.
    """

    id: int
    name: str
    kind: Open[WorkerKind]
    status: Open[WorkerStatus]
    command: Open[Command] | None
    accelerator: str
    gpus: list[dict[str, Any]]
    cpus: float
    memory_mb: int
    disk_mb: int
    labels: dict[str, str]
    version: str
    condition: dict[str, Any] = Field(default_factory=dict)
    last_seen_at: datetime = Field(repr=False)
    silent_s: float
    leases: int


@lru_cache(maxsize=1000)
def is_model(wanted: str, name: str) -> bool:
    """Tell whether a name matches a glob of * and ?; case and the vendor's name do not count.

    The rule of the SQL function `forge_gpus_match`, in Python.
    """
    return _matches(wanted, name) or _matches(f"* {wanted}", name)


def _matches(glob: str, name: str) -> bool:
    pattern = "".join(MAGIC.get(char) or re.escape(char) for char in glob.lower())
    return re.fullmatch(pattern, name.lower(), re.DOTALL) is not None
