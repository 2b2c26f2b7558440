"""The ranks of a job: one for each of its machines."""

from forge_schema.model.job import JobStatus

from forge_client.errors import ClientError


def require_rank(job: JobStatus, rank: int | None) -> None:
    """Check that a job has a rank.

    Raises:
        ClientError: it has too few.
    """
    if rank is None or rank < job.nodes:
        return
    needs = "one machine" if job.nodes == 1 else f"{job.nodes} machines"
    has = "only rank 0" if job.nodes == 1 else f"the ranks 0 to {job.nodes - 1}"
    raise ClientError(
        f"job {job.job_id} has no rank {rank}",
        hint=f"it is for {needs}, and has {has}",
        code="rank_unknown",
    )
