"""The verbs of admins, directly on the database."""

from collections.abc import Mapping
from datetime import timedelta

from forge_schema.model.admin import Invitation
from forge_schema.service.admin import Admin

from forge_client.direct.translation import raising_client_errors
from forge_client.errors import ClientError


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
    ) -> Invitation:
        """Make a worker that waits for its machine, and the line to paste there.

        Raises:
            ClientError: no server is named, or it does not answer.
        """
        url = url or server or self.server_url
        if url is None:
            raise ClientError(
                "a machine joins through a server, but only a database is configured",
                hint="name the server as the machine reaches it: --server https://…",
                code="server_not_named",
            )
        # What speaks HTTP takes a while to import.
        from forge_client.direct.package import package_digest  # noqa: PLC0415

        digest = digest or package_digest(url)
        return super().invite_worker(
            name, url=url, digest=digest, ephemeral=ephemeral, labels=labels, lasts=lasts
        )
