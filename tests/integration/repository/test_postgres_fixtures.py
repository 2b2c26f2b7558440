"""The databases handed to tests are real, empty where promised, and each test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from support.database.postgres import Server


def test_each_database_is_a_copy_of_its_own(postgres_server: Server) -> None:
    with postgres_server.database() as first, postgres_server.database() as second:
        with psycopg.connect(first) as connection:
            connection.execute("CREATE TABLE only_in_first ()")
        with psycopg.connect(second) as connection:
            assert _tables(connection) == []


def test_a_database_is_dropped_although_somebody_is_still_connected(
    postgres_server: Server,
) -> None:
    with postgres_server.database() as url:
        left_open = psycopg.connect(url)
    with psycopg.connect(postgres_server.url()) as connection:
        names = connection.execute("SELECT datname FROM pg_database").fetchall()
    left_open.close()
    assert [name for (name,) in names if name.startswith("test_")] == []


def test_a_migrated_database_has_the_tables_of_the_queue(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert {"job", "lease", "ready"} <= set(_tables(connection))


def test_debians_postgres_answers_as_version_15(postgres15_url: str) -> None:
    with psycopg.connect(postgres15_url) as connection:
        assert connection.info.server_version // 10000 == 15
        assert _tables(connection) == []


def _tables(connection: psycopg.Connection[tuple[str]]) -> list[str]:
    rows = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    )
    return [name for (name,) in rows]
