"""Record in the database that a server is running, for the sweepers.

Without a server, workers over HTTP cannot renew their leases, so sweepers must not consider them
dead.
"""

import structlog
from forge_schema.model.errors import ForgeError

from forge_functions.services import Services

# Records per TTL, and the fraction of a TTL without one that counts as an outage.
NOTES = 12
GAP = 1 / 4

log = structlog.get_logger(__name__)


def keep_noting(services: Services) -> None:
    """Record regularly that this server is running, until it stops."""
    ttl = services.settings.ttl
    while not services.stopping.is_set():
        try:
            services.database.rows("serve", again=True, gap=GAP * ttl)
        except ForgeError as error:
            log.warning("presence_not_noted", error=error.message)
        services.stopping.wait(ttl.total_seconds() / NOTES)
