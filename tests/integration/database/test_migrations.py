"""The migrations make exactly what the models describe, on every Postgres, however often."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from forge_client.backend import CheckStanding
from forge_client.direct.checks import database_checks
from forge_schema.database import current
from forge_schema.database.migrate import UpgradeDenied, engine, upgrade
from forge_schema.database.statements import definitions, views
from forge_schema.database.tables import metadata
from forge_schema.database.tables.columns import type_name
from forge_schema.model import states
from psycopg import sql
from support.at_once import at_once
from support.database import catalog
from support.database.clock import START
from support.queue.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

    from support.database.postgres import Server

WORDS = [
    states.State,
    states.Reason,
    states.Phase,
    states.Asked,
    states.WorkerKind,
    states.WorkerStatus,
    states.Command,
    states.Target,
    states.JobKind,
    states.DependencyKind,
    states.Verdict,
]


def _upgrade_elsewhere(url: str) -> None:
    code = "import sys; from forge_schema.database.migrate import upgrade; upgrade(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=60)


@pytest.fixture
def modelled_url(empty_database_url: str) -> str:
    """URL of a database that holds what the models describe, made without a migration."""
    with psycopg.connect(empty_database_url) as connection:
        for words in WORDS:
            labels = ", ".join(f"'{word.value}'" for word in words)
            connection.execute(f"CREATE TYPE {type_name(words)} AS ENUM ({labels})")
    with engine(empty_database_url).begin() as connection:
        metadata.create_all(connection)
    return empty_database_url


def test_the_migrations_leave_nothing_to_generate(database_url: str) -> None:
    # Both take a while to load, in each test process.
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415
    from alembic.migration import MigrationContext  # noqa: PLC0415

    with engine(database_url).connect() as connection:
        options = {"compare_server_default": True, "include_name": catalog.is_no_partition}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


@pytest.mark.parametrize("what", catalog.QUERIES)
def test_the_migrations_make_what_the_models_make(
    database_url: str, modelled_url: str, what: str
) -> None:
    migrated = catalog.rows(database_url, what)
    assert migrated == catalog.rows(modelled_url, what)
    assert migrated


@pytest.mark.parametrize("words", WORDS)
def test_each_type_has_the_words_of_its_enum(database_url: str, words: type[StrEnum]) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum"
            " WHERE enumtypid = %s::regtype",
            [type_name(words)],
        ).fetchone()
    assert row == ([word.value for word in words],)


def test_there_is_no_type_that_no_enum_describes(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT typname FROM pg_type WHERE typtype = 'e'").fetchall()
    assert {name for (name,) in rows} == {type_name(words) for words in WORDS}


def test_upgrading_again_changes_nothing_and_keeps_the_rows(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("INSERT INTO queue (name) VALUES ('kept')")
    before = catalog.everything(empty_database_url)
    upgrade(empty_database_url)
    assert catalog.everything(empty_database_url) == before
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT name FROM queue").fetchall() == [("kept",)]


@pytest.mark.parametrize("caller", [upgrade, _upgrade_elsewhere])
def test_upgrades_at_once_wait_for_each_other(
    empty_database_url: str, database_url: str, caller: Callable[[str], None]
) -> None:
    at_once(*[partial(caller, empty_database_url)] * 3)
    assert catalog.everything(empty_database_url) == catalog.everything(database_url)


def test_debians_postgres_is_migrated_to_the_same_tables(
    debian_postgres_url: str, database_url: str
) -> None:
    upgrade(debian_postgres_url)
    upgrade(debian_postgres_url)
    assert catalog.everything(debian_postgres_url) == catalog.everything(database_url)


def test_an_unreachable_database_is_an_error_of_one_line() -> None:
    with pytest.raises(psycopg.OperationalError):
        upgrade("postgresql://postgres@127.0.0.1:1/none")


def test_an_older_postgres_is_refused_before_anything_is_made(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "OLDEST_POSTGRES", 99)
    with pytest.raises(current.UnfitPostgres, match=r"Postgres 1\d, and Forge needs 99 or later"):
        upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        assert current.revision_of(connection) is None
    (found,) = database_checks(empty_database_url)
    assert (found.standing, "needs 99" in found.detail) == (CheckStanding.FAIL, True)


def test_a_database_in_another_encoding_is_refused(postgres_server: Server) -> None:
    with (
        postgres_server.database("template0", encoding="LATIN1") as url,
        pytest.raises(current.UnfitPostgres, match="encoding is LATIN1, and Forge needs UTF8"),
    ):
        upgrade(url)


def test_a_role_that_may_make_no_tables_is_told_so(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute("CREATE ROLE plain LOGIN")
        try:
            with pytest.raises(UpgradeDenied, match="permission denied for schema public"):
                upgrade(f"{empty_database_url}&user=plain")
        finally:
            connection.execute("DROP ROLE plain")


@pytest.mark.parametrize("of", ["//postgres@{0}/{1}", "//postgres@%2Fnowhere,{0}/{1}", "///{1}"])
def test_every_url_of_libpq_leads_to_the_database(
    database_url: str, postgres_server: Server, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    monkeypatch.setenv("PGHOST", str(postgres_server.socket_dir))
    monkeypatch.setenv("PGUSER", "postgres")
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    upgrade("postgresql:" + of.format(quote(str(postgres_server.socket_dir), safe=""), name))


def test_tables_may_lie_in_another_schema(empty_database_url: str) -> None:
    url = f"{empty_database_url}&options=-csearch_path%3Dours"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA ours")
        upgrade(url)
        connection.execute("GRANT SELECT ON jobs TO pg_monitor")
        connection.execute("COMMENT ON VIEW job_status IS 'another version'")
        upgrade(url)
        kept = connection.execute("SELECT has_table_privilege('pg_monitor', 'jobs', 'SELECT')")
        assert kept.fetchone() == (True,)
    with closing(Rig(url)) as rig:
        rig.submit()
        assert rig.finish(rig.worker().claim_one()).accepted


def test_an_url_of_something_else_is_refused() -> None:
    for url, why in (("sqlite:///x", "postgresql://"), ("postgresql://x/db\n", "a line break")):
        with pytest.raises(ValueError, match=why):
            upgrade(url)


def test_the_current_functions_and_views_are_in_place(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        functions = connection.execute(
            "SELECT count(*) FROM pg_proc WHERE proname LIKE 'forge%'"
        ).fetchone()
        shown = connection.execute(
            "SELECT viewname FROM pg_views WHERE schemaname = 'public' ORDER BY 1"
        ).fetchall()
    assert functions == (len(definitions("functions")),)
    assert [name for (name,) in shown] == sorted(["attempt", *views()])


UNUSUAL = {
    "default_transaction_isolation": "serializable",
    "idle_session_timeout": "1h",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "standard_conforming_strings": "off",
    "TimeZone": "Asia/Kolkata",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
}


def test_a_database_with_other_formats_and_another_isolation_serves_as_well(
    empty_database_url: str,
) -> None:
    url = empty_database_url
    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in UNUSUAL.items():
            query = "ALTER DATABASE {} SET {} = {}"
            names = map(sql.Identifier, (connection.info.dbname, name))
            connection.execute(sql.SQL(query).format(*names, value))
    upgrade(url)
    with closing(Rig(url)) as rig:
        job_ids = rig.submit_many(2, labels={"zone": "eu*"})
        one, other = rig.worker(labels={"zone": "eu"}).claim(2)
        # Under a stricter isolation, the second one would be refused.
        with rig.uncommitted() as writing:
            writing.cancel(other.fence.job_id)
            assert rig.finish(one).accepted
        told = [rig.jobs.job(job_id) for job_id in job_ids]
        assert [job["submitted_at"] for job in told] == [START, START]
        assert rig.tick.run() is not None
        with rig.database.connection() as connection:
            query = "SELECT current_setting(%s) AS isolation, current_setting(%s) AS idle"
            kept = connection.execute(query, [*UNUSUAL][:2]).fetchone()
        assert kept == {"isolation": "read committed", "idle": "0"}
