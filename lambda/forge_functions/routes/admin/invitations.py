"""Workers that wait for their machines, for admins: the line to paste there."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Request
from forge_schema.access.join_line import PLAIN
from forge_schema.model.admin import Invitation
from forge_schema.model.fields import Word
from forge_schema.model.states import WorkerKind
from pydantic import Field

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems
from forge_functions.joining.package import package
from forge_functions.middleware.bodies import lasting
from forge_functions.middleware.guarded_route import Router
from forge_functions.routes.admin.workers import WorkerBody
from forge_functions.services import Shared

router = Router(
    prefix="/api/v1/admin/invitations", tags=["admin"], responses=problems(401, 403, 409)
)


class NewInvitation(WorkerBody):
    """A worker with a line. Its machine reaches this server at `url`, if not as the caller does."""

    # The line's maker checks it, with words for people.
    url: Annotated[Word, Field(json_schema_extra={"pattern": f"^{PLAIN.pattern}$"})] | None = None


@router.post("", status_code=HTTPStatus.CREATED)
def invite(service: AsAdmin, new: NewInvitation, shared: Shared, request: Request) -> Invitation:
    """Create a worker that waits for its machine, and the line to paste there.

    A repeat, before the worker has connected, makes a new line; the old one is invalid then.
    """
    return service.admin.invitation(
        new.name,
        url=new.url or shared.url(str(request.base_url)),
        digest=package().digest,
        ephemeral=new.kind is WorkerKind.EPHEMERAL,
        labels=new.labels,
        lasts=lasting(new.lasts_s),
    )
