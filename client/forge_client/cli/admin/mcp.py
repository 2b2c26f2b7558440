"""`forge mcp`: jobs for assistants."""

from typing import Annotated

import typer

from forge_client.cli.options.session import settings_of
from forge_client.connection import require_extra
from forge_client.sdk.client import Client
from forge_client.settings import Settings


class CommandsClient(Client):
    """A client with the settings of a command line."""

    def __init__(self, loaded: Settings) -> None:
        self._connect(loaded)


def mcp(
    context: typer.Context,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer only what changes nothing.")
    ] = False,
) -> None:
    """Serve the Model Context Protocol on stdin and stdout, for assistants.

    An assistant's program starts it. It has the rights of the key, or of the user, that it finds.
    """
    require_extra("mcp", "mcp", "serve assistants")
    from forge_client.cli.assistant.server import made_server  # noqa: PLC0415 - of a large library

    server = made_server(lambda: CommandsClient(settings_of(context)), read_only=read_only)
    server.run("stdio")
