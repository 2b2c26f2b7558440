"""PgBouncer in transaction mode, as packaged by Debian."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from support.database.postgres import _unprivileged
from support.ports import free_port
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.database.postgres import Server

# Every server has it.
ELSEWHERE = "postgres"
SETTINGS = """
[databases]
{databases}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 400
default_pool_size = {size}
server_login_retry = 1
server_connect_timeout = 5
query_wait_timeout = 15
log_connections = 0
log_disconnections = 0
log_pooler_errors = 0
"""


def is_here() -> bool:
    """Tell whether PgBouncer is installed."""
    return shutil.which("pgbouncer") is not None


def command(settings: Path, user: str = "") -> list[str]:
    """Return the command that starts it, by default as a user that it accepts."""
    chosen = ["-u", user or _unprivileged().pw_name] if os.geteuid() == 0 else []
    return ["pgbouncer", *chosen, str(settings)]


@contextmanager
def pooler(folder: Path, databases: str, *more: str, user: str) -> Iterator[str]:
    """Run it in front of `databases`, lines of its settings; yield its URL without a database.

    It has one connection for each database; `more` are further lines of its settings. `user` may
    open the server's socket.
    """
    port = free_port()
    settings = folder / "pgbouncer.ini"
    text = SETTINGS.format(databases=databases, port=port, size=1)
    settings.write_text("\n".join([text, *more]), encoding="utf-8")
    url = f"postgresql://postgres@127.0.0.1:{port}/"
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(command(settings, user), stdout=log, stderr=log)
    try:
        eventually(lambda: _listens(port))
        yield url
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@dataclass
class Pooled:
    """A database behind a pooler with one server connection for each of three clients.

    `forge` and `neighbour` use the same database with roles of their own; `elsewhere` has Forge's
    role in another database.
    """

    base: str
    role: str

    @property
    def forge(self) -> str:
        return f"{self.base}forge"

    @property
    def neighbour(self) -> str:
        return f"{self.base}neighbour"

    @property
    def elsewhere(self) -> str:
        return f"{self.base}elsewhere"


@contextmanager
def pooled(folder: Path, server: Server, url: str, *more: str) -> Iterator[Pooled]:
    """Yield a server's database behind a pooler; `more` are lines of its settings."""
    name = str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
    with _roles(url, f"{name}_forge", f"{name}_neighbour") as (own, other):
        clients = {"forge": (name, own), "neighbour": (name, other), "elsewhere": (ELSEWHERE, own)}
        lines = [
            f"{client} = host={server.socket_dir} dbname={database} user={role}"
            for client, (database, role) in clients.items()
        ]
        with pooler(folder, "\n".join(lines), *more, user=server.socket_dir.owner()) as base:
            yield Pooled(base, own)


@contextmanager
def _roles(url: str, own: str, other: str) -> Iterator[tuple[str, str]]:
    with psycopg.connect(url, autocommit=True) as admin:
        # Owns the tables, and may not change other roles.
        admin.execute(f"CREATE ROLE {own} LOGIN IN ROLE postgres".encode())
        admin.execute(f"CREATE ROLE {other} LOGIN".encode())
        try:
            yield own, other
        finally:
            admin.execute(f"DROP ROLE {own}, {other}".encode())
