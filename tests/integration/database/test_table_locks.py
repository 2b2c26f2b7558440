"""An upgrade under use: no request waits for long, or fails, because one is under way."""

from __future__ import annotations

import re
import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from forge_schema.database import current, migrate
from forge_schema.database.current import HEAD, is_current
from forge_schema.database.migrate import engine, upgrade
from forge_schema.database.pool import Database
from support.database.postgres import SINCE_15
from support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection
    from support.queue.rig import Rig

WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
# That of 0.2.0.
OLDEST_RELEASE = "0001"
REFUSE_REWRITES = """
    CREATE FUNCTION refuse_rewrite() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE 'this rewrites %', pg_event_trigger_table_rewrite_oid()::regclass;
    END $$;
    CREATE EVENT TRIGGER refuse_rewrites ON table_rewrite EXECUTE FUNCTION refuse_rewrite();
"""
WIDER = """
    DO $$ BEGIN
        EXECUTE 'CREATE OR REPLACE VIEW job_status AS SELECT old.*, 1 AS later FROM ('
            || rtrim(pg_get_viewdef('job_status'::regclass), ';') || ') AS old';
    END $$
"""
SCANS = "SELECT relid::bigint, relname, seq_scan FROM pg_stat_user_tables"
# They grow with every job. The default partitions are empty, and read when months are made.
LARGE = re.compile(
    r"(job|outcome|attempt|event|metric|sample|result|checkpoint|artifact)(?!.*_default).*"
)
# How often an upgrade from there reads each of them.
READ: dict[str, int] = {}
NEXT = """
from alembic import op

revision, down_revision = "9999", "{HEAD}"


def upgrade() -> None:
    op.execute("ALTER TABLE job ADD COLUMN next text")
"""


@pytest.fixture
def migrating(database_url: str) -> Iterator[Connection]:
    """The transaction of a migration."""
    with engine(database_url).connect() as connection, connection.begin():
        yield connection


@pytest.fixture
def newer_url(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a database of this version, for which the next upgrade has one more revision."""
    folder = shutil.copytree(migrate.MIGRATIONS, tmp_path / "migrations")
    (folder / "versions" / "9999_next.py").write_text(NEXT.replace("{HEAD}", HEAD))
    monkeypatch.setattr(migrate, "MIGRATIONS", folder)
    for module in (current, migrate):
        monkeypatch.setattr(module, "HEAD", "9999")
    return database_url


def test_an_upgrade_gives_way_to_a_request_that_waits_for_it(newer_url: str) -> None:
    ended: list[bool] = []
    with psycopg.connect(newer_url) as request:
        request.execute("LOCK TABLE lease IN ROW EXCLUSIVE MODE")
        thread = threading.Thread(target=lambda: ended.append(upgraded(newer_url)))
        thread.start()
        with psycopg.connect(newer_url, autocommit=True) as other:
            eventually(lambda: other.execute(WAITING).fetchone() == (1,))
        # The upgrade has locked this one already, and waits for the other.
        request.execute("LOCK TABLE job IN ROW EXCLUSIVE MODE")
    thread.join(60)
    assert ended == [True]


def upgraded(url: str) -> bool:
    upgrade(url)
    return is_current(url)


def test_an_upgrade_that_finds_no_moment_says_so_and_holds_nothing(
    migrating: Connection, database_url: str
) -> None:
    with psycopg.connect(database_url) as report:
        report.execute("LOCK TABLE worker IN ACCESS SHARE MODE")
        with pytest.raises(migrate.TablesInUse, match="used the tables"):
            migrate.take(migrating, partial(migrate.lock_all, migrating), 0)
        report.execute("LOCK TABLE job, lease, worker IN ACCESS EXCLUSIVE MODE NOWAIT")


def test_statements_go_on_when_an_upgrade_gives_a_view_another_column(rig: Rig) -> None:
    job = rig.submit()
    with Database(rig.url, size=1) as server, psycopg.connect(rig.url, autocommit=True) as other:

        def columns() -> list[set[str]]:
            (several,) = server.together(("job", {"job_id": job}))
            return [set(server.rows("job", job_id=job)[0]), set(several[0])]

        before = columns()
        other.execute(WIDER)
        assert columns() == [names | {"later"} for names in before]


def test_no_migration_since_the_oldest_release_rewrites_or_reads_a_large_table(
    empty_database_url: str,
) -> None:
    """Meanwhile nobody can use it. A CHECK is added as NOT VALID, and is validated afterwards."""
    upgrade(empty_database_url, OLDEST_RELEASE)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(REFUSE_REWRITES)
        before = scans(connection)
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        read = {
            name: count - before[oid][1]
            for oid, (name, count) in scans(connection).items()
            if oid in before and LARGE.fullmatch(name) and count > before[oid][1]
        }
    assert read == READ


def scans(connection: psycopg.Connection[Any]) -> dict[int, tuple[str, int]]:
    """Return for each table its name, and how often it was read as a whole."""
    # Postgres 14 reports at the end of each transaction.
    if connection.info.server_version >= SINCE_15:
        connection.execute("SELECT pg_stat_force_next_flush()")
    return {oid: (name, count) for oid, name, count in connection.execute(SCANS).fetchall()}
