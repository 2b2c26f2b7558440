"""The verbs about notifications, directly on the database."""

from collections.abc import Mapping
from typing import Any

from forge_schema.model.notifications import KeptNotification
from forge_schema.service.notifications import Notifying

from forge_client.direct.translation import raising_client_errors


@raising_client_errors
class DirectNotifications(Notifying):
    """`server_url` is that of a `forge up`."""

    server_url: str | None = None

    def keep(
        self,
        name: str,
        wanted: Mapping[str, Any],
        *,
        server: str = "",
        owner: str | None = None,
    ) -> KeptNotification:
        """Store a notification, with links to the dashboard of a `forge up`."""
        return super().keep(name, wanted, server=server or self.server_url or "", owner=owner)
