"""A lease, its renewal and its end."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any
from uuid import UUID

from pydantic import JsonValue

from forge_schema.model.fields import Amount, Count, Id, MessagePart
from forge_schema.model.states import Phase, Reason, Standing, State

# What a detail begins with if rank 0's launcher ran all ranks, and says which of them failed first.
NAMES_RANK = re.compile(r"rank \d+ failed first: ")


@dataclass(frozen=True, slots=True)
class Fence(MessagePart):
    """The fencing token of one lease. Every write about the job carries it."""

    job_id: Id
    token: Id
    nonce: UUID

    @property
    def mark(self) -> str:
        """The token as text, with a nonce: numbers repeat after a failover and in other queues."""
        return f"{self.token}-{self.nonce.hex[:12]}"


# Frozen, it would take a tenth of the Python time of a claim of many.
@dataclass(slots=True)
class Grant:
    """A lease just granted, with its job.

    One that is handed out again, since the first answer was lost, was claimed `age_s` seconds ago.
    `parts` are hashes of the image, the environment and the bundle that it needs, None where it
    needs none, and then of the inputs to fetch. A gang has `nodes` leases with the same job and
    attempt, of the ranks from 0. If it `resumes`, there may be a checkpoint to start from. `team`
    is the owner's at that moment, if the job may use its secrets.
    """

    job_id: int
    token: int
    nonce: UUID
    attempt: int
    name: str
    owner: str
    spec: dict[str, Any]
    bundle_digest: str | None
    timeout_s: int | None
    lane_id: int
    priority: int
    failures: int
    losses: int
    preemptions: int
    age_s: float = 0.0
    parts: list[int | None] = field(default_factory=list)
    rank: int = 0
    nodes: int = 1
    resumes: bool = True
    team: str | None = None

    @property
    def fence(self) -> Fence:
        """The lease's fencing token."""
        return Fence(self.job_id, self.token, self.nonce)


@dataclass(frozen=True, slots=True)
class Usage(MessagePart):
    """Resources an attempt used: GPU-seconds, joules, worker's currency, CPU-seconds, MiB.

    None means not measured.
    """

    gpu_seconds: Amount = 0.0
    energy_j: Amount | None = None
    cost: Amount | None = None
    cpu_seconds: Amount | None = None
    peak_memory_mb: Count | None = None
    peak_vram_mb: Count | None = None


@dataclass(frozen=True, slots=True)
class End:
    """A request to end a lease.

    A start that failed is `lasting` if the next one on this worker fails too, unless a person
    changes something.
    """

    fence: Fence
    reason: Reason
    exit_code: int | None = None
    detail: str | None = None
    usage: Usage = field(default=Usage())
    lasting: bool = False


def by_job(end: End) -> tuple[int, int]:
    """Return the key of the order in which every statement locks leases."""
    return end.fence.job_id, end.fence.token


@dataclass(frozen=True, slots=True)
class Ended:
    """The job's state after its lease was ended; `accepted` is False if the lease was lost."""

    job_id: int
    accepted: bool
    reason: Reason | None = None
    state: State | None = None

    @property
    def over(self) -> bool:
        """Whether the job is known to have ended; otherwise it may be claimed again."""
        return self.state is not None and self.state.terminal


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to a renewal: the status of each lease, and what the worker should do.

    If other machines could not reach it, it takes part in gangs again in `gangs_after_s` seconds.
    While it is `suspected`, it takes one job at a time.
    """

    standings: dict[Fence, Standing]
    command: str | None
    gangs_after_s: float | None = None
    suspected: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a run, as the others see it: what it told them, and whether it is over.

    `step` is 0 while it prepares, 1 once it is prepared, 2 once it can reach the master. Its
    `phase` is `claimed` until it has fetched its lease.
    """

    rank: int
    worker: str
    step: int
    details: dict[str, JsonValue] = field(default_factory=dict)
    over: bool = False
    phase: str = field(default="", compare=False)

    @property
    def late(self) -> str:
        """What the others of its run wait for, as a verb and its object."""
        if self.phase == Phase.CLAIMED:
            return "has not fetched its lease"
        if self.step < 1:
            return "has not prepared yet"
        return "has not passed the network check"


@dataclass(frozen=True, slots=True)
class Gathering:
    """The status of a member's lease, and all members of its run by rank."""

    standing: Standing
    members: list[Member] = field(default_factory=list)


def array(values: Sequence[object]) -> str:
    """Return numbers, UUIDs and None as a Postgres array literal.

    psycopg's list dumper takes longer than the whole claim takes on the server.
    """
    return "{" + ",".join(["NULL" if v is None else str(v) for v in values]) + "}"


def share(progress: float | None) -> float | None:
    """Clamp a progress to 0 to 1, as a lease stores it; None if it is not a number."""
    if progress is None or isnan(progress):
        return None
    return min(max(progress, 0.0), 1.0)


def fence_params(fence: Fence) -> dict[str, object]:
    """Return one fencing token as the parameters of a statement."""
    return {"job_id": fence.job_id, "token": fence.token, "nonce": fence.nonce}


def fences(leases: Sequence[Fence]) -> dict[str, str]:
    """Return fencing tokens as the array parameters of a statement."""
    return {
        "job_ids": array([f.job_id for f in leases]),
        "tokens": array([f.token for f in leases]),
        "nonces": array([f.nonce.hex for f in leases]),
    }


def usages(ends: Sequence[End]) -> dict[str, str]:
    """Return the usage of some attempts as the array parameters of a statement."""
    return {
        "gpu_seconds": array([end.usage.gpu_seconds for end in ends]),
        "energies": array([end.usage.energy_j for end in ends]),
        "costs": array([end.usage.cost for end in ends]),
        "cpu_seconds": array([end.usage.cpu_seconds for end in ends]),
        "peak_memories": array([end.usage.peak_memory_mb for end in ends]),
        "peak_vrams": array([end.usage.peak_vram_mb for end in ends]),
    }
