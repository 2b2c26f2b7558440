"""The migrations make exactly what the models describe, on every Postgres, however often."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest
from forge_client.backend import CheckStanding
from forge_client.direct.checks import database_checks
from forge_schema.database import current
from forge_schema.database.migrate import sqlalchemy_url, upgrade
from forge_schema.database.statements import definitions, views
from forge_schema.database.tables import metadata
from forge_schema.database.tables.columns import type_name
from forge_schema.model import states
from sqlalchemy import create_engine
from support.at_once import at_once
from support.database import catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

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
    engine = create_engine(sqlalchemy_url(empty_database_url))
    metadata.create_all(engine)
    engine.dispose()
    return empty_database_url


def test_the_migrations_leave_nothing_to_generate(database_url: str) -> None:
    # Both take a while to load, in each test process.
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415
    from alembic.migration import MigrationContext  # noqa: PLC0415

    engine = create_engine(sqlalchemy_url(database_url))
    with engine.connect() as connection:
        options = {"compare_server_default": True, "include_name": catalog.is_no_partition}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    engine.dispose()


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
    with pytest.raises(current.OldPostgres, match=r"Postgres 1\d, and Forge needs 99 or later"):
        upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        assert current.revision_of(connection) is None
    (found,) = database_checks(empty_database_url)
    assert (found.standing, "needs 99" in found.detail) == (CheckStanding.FAIL, True)


def test_an_url_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="postgresql://"):
        upgrade("sqlite:///x")


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
