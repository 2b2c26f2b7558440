"""The whole `forge` command: its commands, and the options before their names."""

from pathlib import Path
from typing import Annotated

import typer

from forge_client.cli.commands import Commands
from forge_client.cli.options.session import Flags
from forge_client.exit_codes import MEANINGS

QUEUE = "Connection"
EPILOG = "Exit codes: " + "; ".join(f"{code:d} {text}" for code, text in MEANINGS.items())

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        # It takes a while to import.
        from importlib.metadata import version  # noqa: PLC0415

        print(f"forge {version('forge-queue')}")  # noqa: T201 - the data
        raise typer.Exit


@app.callback()
def forge(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(envvar="FORGE_URL", help="A server: https://…", rich_help_panel=QUEUE),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            envvar="FORGE_API_KEY_FILE",
            help="File with the API key; or set FORGE_API_KEY.",
            rich_help_panel=QUEUE,
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="FORGE_TLS_CA",
            help="Additional certificates to trust (PEM).",
            rich_help_panel=QUEUE,
        ),
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(envvar="FORGE_DATABASE_URL", help="postgresql://…", rich_help_panel=QUEUE),
    ] = None,
    store_url: Annotated[
        str | None,
        typer.Option(envvar="FORGE_STORE_URL", help="s3://… or file://…", rich_help_panel=QUEUE),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            envvar="FORGE_DIR",
            help="The folder of a running `forge up`.",
            rich_help_panel=QUEUE,
        ),
    ] = None,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Submit training jobs to a Forge queue, watch them, fetch their results.

    Without options, FORGE_* variables or a forge.toml that name the queue, the commands use a
    running `forge up`.
    """
    del url, api_key_file, tls_ca, database_url, store_url, folder
    context.obj = Flags.given(context)
