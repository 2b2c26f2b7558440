"""The function for admins. It also serves the fleet to everybody."""

from forge_functions.handlers.lambda_handler import LambdaHandler
from forge_functions.routes import fleet
from forge_functions.routes.admin import approvals as admin_approvals
from forge_functions.routes.admin import events as admin_events
from forge_functions.routes.admin import invitations as admin_invitations
from forge_functions.routes.admin import keys as admin_keys
from forge_functions.routes.admin import notifier as admin_notifier
from forge_functions.routes.admin import queues as admin_queues
from forge_functions.routes.admin import workers as admin_workers
from forge_functions.routes.workers import join

handler = LambdaHandler(
    admin_workers.router,
    admin_invitations.router,
    admin_keys.router,
    admin_queues.router,
    admin_approvals.router,
    admin_events.router,
    admin_notifier.router,
    # It refuses: these functions hold a part of the packages only.
    join.router,
    fleet.router,
)
