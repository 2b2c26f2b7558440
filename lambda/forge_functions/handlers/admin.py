"""The function for admins; everybody may read the fleet by it."""

from forge_functions.handlers.gateway import Gateway
from forge_functions.routes import admin_events, admin_keys, admin_queues, admin_workers, fleet

handler = Gateway(
    fleet.router,
    admin_workers.router,
    admin_keys.router,
    admin_queues.router,
    admin_events.router,
)
