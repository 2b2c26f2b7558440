"""`forge doctor`: checks of this machine and its connections, with remedies."""

import os
import platform
import shutil
import subprocess
import sys
import textwrap

import typer
from forge_schema.model.quantities import duration_text

from forge_client.checks import Check, Standing
from forge_client.cli.options.session import settings_of
from forge_client.cli.show import output
from forge_client.cli.show.output import Column, Format, FormatOption
from forge_client.connection import connect
from forge_client.errors import ClientError
from forge_client.exit_codes import ExitCode

OLDEST = (3, 11)
ENGINE_S = 15
WIDEST = 90
COLUMNS: list[Column] = [
    ("CHECK", lambda c: c.name),
    ("", lambda c: c.standing.value),
    ("FOUND", lambda c: c.detail),
    ("WHAT TO DO", lambda c: c.hint),
]


def doctor(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """Check this installation and its connections."""
    found = [_python(), *_connected(context), _engine()]
    output.show(found, COLUMNS, form)
    if any(check.standing is Standing.FAIL for check in found):
        raise typer.Exit(ExitCode.FAILED)


def _python() -> Check:
    standing = Standing.OK if sys.version_info >= OLDEST else Standing.FAIL
    detail = f"{platform.python_version()} at {sys.executable}"
    return Check(name="python", standing=standing, detail=detail)


def _connected(context: typer.Context) -> list[Check]:
    try:
        with connect(settings_of(context)) as backend:
            return backend.health()
    except ClientError as error:
        failed = Standing.FAIL
        return [Check(name="connection", standing=failed, detail=error.message, hint=error.hint)]


def _engine() -> Check:
    program = shutil.which("docker")
    if program is None:
        detail, hint = "docker is not installed", "jobs run as processes until it is"
    else:
        command = [program, "version", "--format", "{{.Server.Version}}"]
        try:
            asked = subprocess.run(  # noqa: S603 - fixed arguments
                command, capture_output=True, text=True, timeout=ENGINE_S, check=False
            )
            if asked.returncode == 0:
                detail = f"Docker {asked.stdout.strip()}"
                return Check(name="containers", standing=Standing.OK, detail=detail)
            said = (asked.stderr.strip() or "it does not answer").splitlines()[-1]
            detail = textwrap.shorten(said, WIDEST, placeholder=" …")
        except subprocess.TimeoutExpired:
            detail = f"the engine does not answer within {duration_text(ENGINE_S)}"
        hint = "start it, or let this user reach its socket; jobs run as processes until then"
        hint += " (you are root)" if os.geteuid() == 0 else ""
    return Check(name="containers", standing=Standing.WARN, detail=detail, hint=hint)
