"""A link that logs in to the dashboard of a server or of a `forge up`."""

import os
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

from forge_schema.service.caller import Forbidden

from forge_client import running
from forge_client.backend import Backend
from forge_client.connection import connect
from forge_client.errors import ClientError
from forge_client.http import Server
from forge_client.http.transport import Transport
from forge_client.settings import Settings

# A session ends with the key that started it.
LASTS = timedelta(hours=12)


def login_link(settings: Settings) -> str:
    """Return a link that logs in to the dashboard once.

    Raises:
        ClientError: there is no server, or it does not answer.
    """
    server = _server(settings)
    with closing(Transport(server)) as asked:
        try:
            answer = asked.send("POST", "/login/link", again=True)
        except ClientError as error:
            if server.login and error.code == Forbidden.code:
                # Its browser is logged in, and a session makes no other that lasts longer.
                return f"{server.url}/"
            raise
        return f"{server.url}{asked.field(answer, 'path')}"


def _server(settings: Settings) -> Server:
    if settings.url:
        return settings.server()
    if settings.database_url:
        raise ClientError(
            "the dashboard needs a server, but a database is configured",
            hint="name the server with --url, or set FORGE_URL and FORGE_API_KEY",
            code="server_not_named",
        )
    up = running.find(settings.dir)
    with connect(settings) as backend:
        return Server(up.url, key_for(up, backend, settings.owner))


def key_for(up: running.Running, backend: Backend, owner: str) -> str:
    """Return this owner's key of an earlier link while most of its time is left, or a new one."""
    kept = up.dir / f"dashboard-key-{owner.encode().hex()[:64]}"
    active = {key.id: key.expires_at for key in backend.admin.api_keys() if key.revoked_at is None}
    with suppress(OSError, ValueError):
        key_id, text = kept.read_text(encoding="utf-8").split()
        ends = active.get(key_id)
        if ends and ends > datetime.now(UTC) + LASTS / 2:
            return text
    made = backend.admin.create_key(owner, "admin", name="forge dashboard", lasts=LASTS)
    descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{made.id} {made.text}\n")
    return made.text
