"""The `forge` command."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

# A command makes fifty thousand objects as it starts, none of them garbage. Looking for some again
# and again would take a tenth of its time.
gc.set_threshold(200_000)
# None of pydantic's plugins is of use here, and looking for them reads the metadata of all
# installed packages.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import typer

from forge_client.cli.commands import Commands
from forge_client.cli.options.session import Flags
from forge_client.cli.show import narration
from forge_client.errors import ClientError, as_client_error
from forge_client.exit_codes import MEANINGS, ExitCode

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
def forge(  # noqa: PLR0917 - typer calls it by name
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
    _: Annotated[  # noqa: FBT002 - typer calls it by name
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


def main() -> None:
    """Run the command; every expected error becomes one line, a hint and an exit code."""
    try:
        _run()
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        status = ExitCode.INTERRUPTED
    else:
        status = ExitCode.OK
    finally:
        _flush()
    sys.stderr.flush()
    # Freeing every object would take a fifth of the command's time.
    os._exit(status if isinstance(status, int) else int(status is not None))


def _flush() -> None:
    """Flush stdout; a closed pipe, as in `forge ps | head`, is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the flush would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    try:
        # Every error of Forge's own is one of the user's, whichever part raised it.
        with as_client_error():
            app(prog_name="forge")
    except ClientError as error:
        _debug(error)
        narration.complain(error)
        sys.exit(error.exit_code)
    except OSError as error:
        _debug(error)
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        narration.complain(
            ClientError(what, hint="check the path, the disk and your permissions there")
        )
        sys.exit(ExitCode.FAILED)
    except Exception as error:  # noqa: BLE001 - the last line of defence
        _debug(error)
        narration.complain(
            ClientError(
                f"unexpected error: {type(error).__name__}: {error}",
                hint="FORGE_DEBUG=1 shows where; please report it",
            )
        )
        sys.exit(ExitCode.FAILED)


def _debug(error: Exception) -> None:
    if os.environ.get("FORGE_DEBUG"):
        raise error


if __name__ == "__main__":
    main()
