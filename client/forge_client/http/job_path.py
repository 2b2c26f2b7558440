"""The path of a job at a server."""

from forge_schema.model.job import possible_job

from forge_client.errors import as_client_error

JOBS = "/api/v1/queue/jobs"


def job_path(job_id: int) -> str:
    """Return the path of a job.

    Raises:
        ClientError: no job could have this id.
    """
    with as_client_error():
        return f"{JOBS}/{possible_job(job_id)}"
