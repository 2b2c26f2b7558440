"""`forge db`, `forge backup` and `forge restore`: the queue's database, and copies of it."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from forge_client.cli.options.command_line import VerbNames
from forge_client.cli.options.session import settings_of
from forge_client.cli.show import narration
from forge_client.connection import require_extra
from forge_client.settings import QueueConnection

app = typer.Typer(cls=VerbNames, no_args_is_help=True, help="The database: upgrade it, move it.")


@app.callback()
def db() -> None:
    """Upgrade the database's tables, or move the queue to another database."""


@app.command()
def upgrade(
    context: typer.Context,
    url: Annotated[str | None, typer.Argument(help="A postgresql:// URL.")] = None,
) -> None:
    """Migrate the database (safe to repeat)."""
    chosen = url or settings_of(context).connection().database_url
    require_extra("alembic", "schema", "migrate a database")
    from forge_client.direct import migration  # noqa: PLC0415 - only with the extra

    revision = migration.migrate(chosen)
    narration.say(f"the database is at revision {revision}")
    if not migration.has_report_role(chosen):
        narration.say(
            "this user may not create roles, so there is no role that can only read the reports:"
            " let a user who may run CREATE ROLE forge_report NOLOGIN, and upgrade again"
        )
    if store := settings_of(context).store_url:
        migration.try_store(store, narration.say)


@app.command()
def move(
    context: typer.Context,
    to: Annotated[str, typer.Option(help="An empty database: postgresql://…")],
    store: Annotated[str, typer.Option(help="The store to use there: s3://… or file://…")],
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give up a move that was cut short.")
    ] = False,
) -> None:
    """Move the queue to another database and store, with its history, logs and artifacts.

    Workers behind a server wait meanwhile; others drain. Repeat it if it was cut short, and
    again when the servers use the new place: objects may have arrived late.
    """
    require_extra("psycopg", "schema", "move a queue")
    from forge_client.direct.move import Move  # noqa: PLC0415 - only with the extra

    moving = Move(settings_of(context).connection(), QueueConnection(to, store), narration.say)
    if cancel:
        moving.cancel()
        return
    with tempfile.TemporaryDirectory(prefix="forge-move-") as folder:
        moving.run(Path(folder))
    narration.say("moved; start servers and workers with FORGE_DATABASE_URL and FORGE_STORE_URL")


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
