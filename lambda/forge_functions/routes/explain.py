"""Explanations of jobs, for callers who may see the job."""

from typing import Annotated

from fastapi import APIRouter, Query
from forge_schema.model.explanation import Explanation
from forge_schema.model.job import EXPLAINED, MOST_EXPLAINED

from forge_functions.auth.roles import AsViewer, JobInPath
from forge_functions.errors import problems

router = APIRouter(
    prefix="/api/v1/queue/jobs/{job_id}", tags=["jobs"], responses=problems(401, 403, 404)
)


@router.get("/explain")
def explain_job(
    service: AsViewer,
    job_id: JobInPath,
    workers: Annotated[int, Query(ge=0, le=MOST_EXPLAINED)] = EXPLAINED,
) -> Explanation:
    """Explain why a job waits and what would start it, where it runs, or how it ended."""
    return service.explain(job_id, workers=workers)
