"""`forge dashboard`: a link that logs in to the dashboard of a server or a `forge up`."""

import webbrowser
from typing import Annotated

import typer

from forge_client.cli.options.session import settings_of
from forge_client.cli.show import narration
from forge_client.login_link import login_link


def dashboard(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Print a link that logs you in to the dashboard once, within a minute.

    It logs in as your API key does; for a `forge up`, as an admin whose key lasts 12 hours. After
    `forge login`, it is only the address.
    """
    link = login_link(settings_of(context))
    print(link)  # noqa: T201 - the data
    if show and not webbrowser.open(link):
        narration.say("no browser could be started here; open the link yourself")
