"""The job in a page's path, if the visitor may see it."""

from typing import Annotated

from fastapi import Depends
from forge_schema.database.pool import Row

from forge_functions.auth.job import own_job
from forge_functions.dashboard.visit.visitor import SeesPages
from forge_functions.middleware.bodies import IdInPath
from forge_functions.services import Shared


def own_job_of_page(job_id: IdInPath, who: SeesPages, shared: Shared) -> Row:
    """Return a job's status and spec. A FastAPI dependency.

    Raises:
        JobUnknown: it does not exist or belongs to another owner; the answer is the same.
    """
    return own_job(job_id, who, shared)


PageJob = Annotated[Row, Depends(own_job_of_page)]
