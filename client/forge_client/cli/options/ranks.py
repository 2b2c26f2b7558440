"""The ranks of a job: one for each of its machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forge_client.errors import ClientError

if TYPE_CHECKING:
    from forge_schema.model.job import JobStatus


def require_rank(job: JobStatus, rank: int | None) -> None:
    """Check that a job has a rank.

    Raises:
        ClientError: it has too few.
    """
    if rank is None or rank < job.nodes:
        return
    several = f"its ranks are 0 to {job.nodes - 1}, one for each machine"
    raise ClientError(
        f"job {job.job_id} has no rank {rank}",
        hint=several if job.nodes > 1 else "it runs on one machine, which is rank 0",
        code="rank_unknown",
    )
