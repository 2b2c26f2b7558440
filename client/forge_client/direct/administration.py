"""The verbs of admins, directly on the database."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from forge_schema.access.join_line import PACKAGE
from forge_schema.model.admin import Invitation, UpgradeLine
from forge_schema.model.notifications import KeptNotification
from forge_schema.service.admin import Admin
from forge_schema.service.notifications import Notifying

from forge_client.direct import raising_client_errors
from forge_client.errors import ClientError, as_client_error

PATIENCE_S = 30.0


@raising_client_errors
class DirectAdmin(Admin):
    """`server_url` is that of a `forge up`."""

    server_url: str | None = None

    def invite_worker(
        self,
        name: str,
        *,
        url: str | None = None,
        ephemeral: bool = False,
        labels: Mapping[str, str] | None = None,
        lasts: timedelta | None = None,
        server: str = "",
        digest: str = "",
        authority: str = "",
    ) -> Invitation:
        """Make a worker that waits for its machine, and the line to paste there.

        Raises:
            ClientError: no server is named, or it does not answer.
        """
        url = self._server(url or server)
        if not digest:
            digest, authority = _package_and_authority(url)
        return super().invite_worker(
            name, url=url, digest=digest, authority=authority, ephemeral=ephemeral, labels=labels,
            lasts=lasts,
        )  # fmt: skip

    def upgrade_line(
        self, *, url: str | None = None, server: str = "", digest: str = "", authority: str = ""
    ) -> UpgradeLine:
        """Return the line to paste on machines that have joined, for the server's version.

        Raises:
            ClientError: no server is named, or it does not answer.
        """
        url = self._server(url or server)
        if not digest:
            digest, authority = _package_and_authority(url)
        return super().upgrade_line(url=url, digest=digest, authority=authority)

    def _server(self, named: str) -> str:
        """Return the server's URL: the named one, or that of `forge up`."""
        url = named or self.server_url
        if url is None:
            raise ClientError(
                "a machine joins through a server, but only a database is configured",
                hint="name the server as the machine reaches it: --server https://…",
                code="server_not_named",
            )
        return url


def _package_and_authority(url: str) -> tuple[str, str]:
    """Return the SHA-256 of the package that a server gives out, and of its own authority."""
    # What speaks HTTP takes a while to import.
    import httpx  # noqa: PLC0415
    from forge_schema.http_client import open_client, tls_context  # noqa: PLC0415
    from forge_schema.own_authority import fingerprint, offered  # noqa: PLC0415

    try:
        tls, patience = tls_context(None), httpx.Timeout(PATIENCE_S)
        with as_client_error(), open_client("forge", tls, patience) as client:
            answer = client.get(f"{url.rstrip('/')}{PACKAGE}").raise_for_status()
            own = offered(url, tls)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ClientError(
            f"{url} does not give out the package for machines: {error}",
            hint="check --server; it names a forge-server, as in https://forge.example:8900",
            code="server_unreachable",
        ) from error
    return hashlib.sha256(answer.content).hexdigest(), fingerprint(own) if own else ""


@raising_client_errors
class DirectNotifications(Notifying):
    """`server_url` is that of a `forge up`."""

    server_url: str | None = None

    def keep(
        self, name: str, wanted: Mapping[str, Any], *, server: str = "", owner: str | None = None
    ) -> KeptNotification:
        """Store a notification, with links to the dashboard of a `forge up`."""
        return super().keep(name, wanted, server=server or self.server_url or "", owner=owner)
