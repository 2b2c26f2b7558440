"""How notifications leave, for admins."""

from fastapi import APIRouter
from forge_schema.model.notifications import Notifier, NotifierChanges

from forge_functions.auth.roles import AsAdmin
from forge_functions.errors import problems

router = APIRouter(prefix="/api/v1/admin/notifier", tags=["admin"], responses=problems(401, 403))


@router.get("")
def notifier(service: AsAdmin) -> Notifier:
    """Return the mail server without its password, its sender, and what webhooks reach."""
    return service.notifications.notifier()


@router.patch("")
def change_notifier(service: AsAdmin, changes: NotifierChanges) -> Notifier:
    """Set the mail server, its sender, and the networks that webhooks may reach."""
    return service.notifications.set_notifier(changes.model_dump(exclude_unset=True))
