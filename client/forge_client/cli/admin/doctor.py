"""`forge doctor`: checks of this machine and its connections, with remedies."""

import platform
import sys

import typer

from forge_client.backend import Check, CheckStanding
from forge_client.cli.options.session import settings_of
from forge_client.cli.options.values import FormatOption
from forge_client.cli.show import output
from forge_client.cli.show.output import Column, Format
from forge_client.connection import connect
from forge_client.errors import ClientError, ExitCode
from forge_client.up.engine import engine_check

OLDEST = (3, 11)
COLUMNS: list[Column] = [
    ("CHECK", lambda c: c.name),
    ("", lambda c: c.standing.value),
    ("FOUND", lambda c: c.detail),
    ("WHAT TO DO", lambda c: c.hint),
]


def doctor(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """Check this installation and its connections."""
    findings = [_python(), *_connected(context), engine_check()]
    output.show(findings, COLUMNS, form)
    if any(check.standing is CheckStanding.FAIL for check in findings):
        raise typer.Exit(ExitCode.FAILED)


def _python() -> Check:
    standing = CheckStanding.OK if sys.version_info >= OLDEST else CheckStanding.FAIL
    detail = f"{platform.python_version()} at {sys.executable}"
    return Check(name="python", standing=standing, detail=detail)


def _connected(context: typer.Context) -> list[Check]:
    try:
        with connect(settings_of(context)) as backend:
            return backend.health()
    except ClientError as error:
        failed = CheckStanding.FAIL
        return [Check(name="connection", standing=failed, detail=error.message, hint=error.hint)]
