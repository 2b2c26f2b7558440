"""The verbs of a user, for callers of a role."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Path
from forge_schema.model.fields import Word
from forge_schema.model.states import Role
from forge_schema.service.caller import Caller
from forge_schema.service.local import LocalService

from forge_functions.auth.authentication import caller
from forge_functions.services import Services, services


def service_for(role: Role) -> Callable[[Caller, Services], LocalService]:
    """Return the dependency that gives callers of this role or a higher one the service."""

    def permitted(
        who: Annotated[Caller, Depends(caller)], shared: Annotated[Services, Depends(services)]
    ) -> LocalService:
        # Here too, so that a role that is too low is refused before a body that is wrong.
        who.require(role)
        return shared.service(who)

    return permitted


def job_in_path(
    job_id: Annotated[
        Word, Path(description="the job's id, `@last`, its name or the beginning of its name")
    ],
    who: Annotated[Caller, Depends(caller)],
    shared: Annotated[Services, Depends(services)],
) -> int:
    """Return the id of the job that a path names, as `/api/v1/queue/job-id` finds it."""
    return shared.service(who).job_id(job_id)


JobInPath = Annotated[int, Depends(job_in_path)]
AsViewer = Annotated[LocalService, Depends(service_for(Role.VIEWER))]
AsSubmitter = Annotated[LocalService, Depends(service_for(Role.SUBMITTER))]
AsAdmin = Annotated[LocalService, Depends(service_for(Role.ADMIN))]
