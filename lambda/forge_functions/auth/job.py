"""The job in a path, if the caller may access it."""

from typing import Annotated

from fastapi import Depends
from forge_schema.database.pool import Row
from forge_schema.queue.inputs import JobUnknown
from forge_schema.read.jobs import Jobs

from forge_functions.auth.caller import Caller, caller
from forge_functions.middleware.bodies import IdInPath
from forge_functions.services import Services, services


def own_job(
    job_id: IdInPath,
    who: Annotated[Caller, Depends(caller)],
    shared: Annotated[Services, Depends(services)],
) -> Row:
    """Return a job's status and spec. A FastAPI dependency.

    Raises:
        JobUnknown: it does not exist or belongs to another owner; the answer is the same.
    """
    row = Jobs(shared.database).job(job_id)
    if not who.admin and row["owner"] != who.owner:
        raise JobUnknown(f"there is no job {job_id}", hint="`forge ps` lists the jobs")
    return row


OwnJob = Annotated[Row, Depends(own_job)]
