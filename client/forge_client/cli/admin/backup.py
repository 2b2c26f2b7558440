"""`forge backup` and `forge restore`: the whole queue in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from forge_client.cli.options.session import settings_of
from forge_client.cli.show import narration
from forge_client.connection import require_extra

Folder = Annotated[Path, typer.Argument(help="The folder of the backups.", file_okay=False)]


def backup(context: typer.Context, folder: Folder) -> None:
    """Back up the queue and its objects into a folder, while workers continue.

    Each call adds the database as it is then, and the objects that the folder lacks.
    """
    require_extra("psycopg", "schema", "back up a queue")
    from forge_client.direct.backup import backup as run  # noqa: PLC0415 - only with the extra

    run(settings_of(context).connection(), folder, narration.say)


def restore(context: typer.Context, folder: Folder) -> None:
    """Fill an empty database, and a store, from the newest backup in a folder."""
    require_extra("psycopg", "schema", "restore a queue")
    from forge_client.direct.backup import restore as run  # noqa: PLC0415 - only with the extra

    done = run(settings_of(context).connection(), folder, narration.say)
    if done.missing:
        narration.say(f"{done.missing} objects that the queue names are not in the store")
    narration.say(f"restored {done.dump}; the next job is {done.next_job}")
