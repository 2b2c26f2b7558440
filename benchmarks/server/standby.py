"""A synchronous standby of the benchmark's Postgres, which takes over when the primary is lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
from forge_client.up import postgres
from forge_client.up.folder_access import let_pass
from forge_client.up.postgres import SOCKET, SUPERUSER, Postgres

# Each commit waits for a standby, so that a failover loses nothing acknowledged.
WAIT_FOR_ONE = (
    "ALTER SYSTEM SET synchronous_standby_names = '*'",
    "SELECT pg_reload_conf()",
)
IN_STEP = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@contextmanager
def standby(primary: str) -> Iterator[Postgres]:
    """Copy the server of a URL, and have the copy follow it."""
    with TemporaryDirectory(prefix="forge-standby-") as folder:
        data = Path(folder) / "pg"
        programs, user = postgres.installed(data)
        data.mkdir(exist_ok=True)
        data.chmod(0o700)
        if user is not None:
            os.chown(data, user.pw_uid, user.pw_gid)
            let_pass(user, data)
        source = f"host={_socket(primary)} user={SUPERUSER}"
        copy: list[str | Path] = [programs / "pg_basebackup", "-D", data, "-d", source]
        copy += ["-R", "-X", "stream", "-c", "fast", "--no-sync"]
        postgres.Call(copy, data, user).finish(data, 600)
        # The primary's socket lies in its data, and its lock was copied.
        (data / f"{SOCKET}.lock").unlink(missing_ok=True)
        server = Postgres(data)
        server.start()
        try:
            _follow(primary)
            yield server
        finally:
            server.stop()


def either(primary: str, follower: Postgres) -> str:
    """Return the URL of whichever of the two is the primary."""
    place = urlsplit(primary)
    hosts = ",".join((_socket(primary), _socket(follower.url)))
    asks = f"host={quote(hosts)}&target_session_attrs=read-write"
    return place._replace(query=asks).geturl()


def promote(follower: Postgres) -> None:
    """Make the standby the primary."""
    with psycopg.connect(follower.url, autocommit=True) as connection:
        assert connection.execute("SELECT pg_promote()").fetchone() == (True,)


def _follow(primary: str) -> None:
    with psycopg.connect(primary, autocommit=True) as connection:
        for statement in WAIT_FOR_ONE:
            connection.execute(statement)
        while connection.execute(IN_STEP).fetchone() != (1,):
            pass


def _socket(url: str) -> str:
    [folder] = parse_qs(urlsplit(url).query)["host"]
    return folder
