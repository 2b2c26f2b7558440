"""A server's note in the database that it is here, for the sweepers.

While no server is, workers that come over HTTP cannot renew, and nobody is to take their leases for
those of dead ones.
"""

import structlog
from forge_schema.model.errors import ForgeError

from forge_functions.services import Services

# So many notes in a TTL, and this share of it without one was an outage.
NOTES = 12
GAP = 1 / 4

log = structlog.get_logger(__name__)


def keep_noting(services: Services) -> None:
    """Note that this server is here, until it is to leave."""
    ttl = services.settings.ttl
    while not services.stopping.is_set():
        try:
            services.database.rows("serve", again=True, gap=GAP * ttl)
        except ForgeError as error:
            log.warning("presence_not_noted", error=error.message)
        services.stopping.wait(ttl.total_seconds() / NOTES)
