"""`forge db`: the database's tables."""

from typing import Annotated

import typer

from forge_client.cli.options.session import settings_of
from forge_client.cli.show import narration
from forge_client.connection import require_extra

app = typer.Typer(no_args_is_help=True, help="The database's tables.")


@app.callback()
def db() -> None:
    """Manage the database's tables."""


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
