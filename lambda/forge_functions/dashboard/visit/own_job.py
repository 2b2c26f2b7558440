"""The job in a page's path, if the visitor may see it."""

from typing import Annotated

from fastapi import Depends
from forge_schema.model.job import JobDetail

from forge_functions.dashboard.visit.visitor import SeesPages
from forge_functions.middleware.bodies import IdInPath
from forge_functions.services import Shared


def own_job_of_page(job_id: IdInPath, who: SeesPages, shared: Shared) -> JobDetail:
    """Return a job. A FastAPI dependency.

    Raises:
        JobUnknown: it does not exist or belongs to another owner; the answer is the same.
    """
    return shared.service(who).job(job_id)


PageJob = Annotated[JobDetail, Depends(own_job_of_page)]
