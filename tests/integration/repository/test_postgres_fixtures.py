"""The databases handed to tests are real, empty where promised, and each test's own."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from support.database.clock import START
from support.database.postgres import DEBIAN_MAJOR
from support.queue.rig import Rigs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.database.postgres import Server
    from support.queue.rig import Rig


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
        name = left_open.info.dbname
    # Rigs that other tests gave back are still there.
    with psycopg.connect(postgres_server.url()) as connection:
        names = connection.execute("SELECT datname FROM pg_database").fetchall()
    left_open.close()
    assert (name,) not in names


def test_a_migrated_database_has_the_tables_of_the_queue(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert {"job", "lease", "ready"} <= set(_tables(connection))


def test_debians_postgres_is_empty_and_of_its_release(debian_postgres_url: str) -> None:
    with psycopg.connect(debian_postgres_url) as connection:
        assert connection.info.server_version // 10000 == DEBIAN_MAJOR
        assert _tables(connection) == []


@pytest.fixture
def rigs(postgres_server: Server, template_database: str) -> Iterator[Rigs]:
    with closing(Rigs(postgres_server, template_database)) as made:
        yield made


def test_a_rig_is_lent_again_as_it_was_at_first(rigs: Rigs) -> None:
    with rigs.lent() as rig:
        first = _contents(rig)
        job = rig.submit()
        rig.clock.advance(100)
        rig.finish(rig.worker().claim_one())
        rig.rows("UPDATE sweeper SET gap = '1 minute'")
        rig.rows("SET enable_seqscan = off")
        rig.database.lose("submit")
        left_open = psycopg.connect(rig.url)
    with rigs.lent() as again:
        assert again is rig
        assert _contents(rig) == first
        assert (rig.clock.now, rig.rows("SELECT forge_now() AS now")) == (START, [{"now": START}])
        assert rig.row("SHOW enable_seqscan") == {"enable_seqscan": "on"}
        assert rig.submit() == job
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("SELECT 1")
    left_open.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more ()",
        "DROP TABLE request_nonce",
        "ALTER TABLE outcome DISABLE TRIGGER outcome_release",
        "CREATE OR REPLACE FUNCTION forge_now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
        "ANALYZE job",
        "ALTER ROLE postgres IN DATABASE {} SET jit = off",
    ],
)
def test_a_rig_of_which_more_than_rows_has_changed_is_not_lent_again(
    rigs: Rigs, change: str
) -> None:
    with rigs.lent() as rig:
        (name,) = rig.row("SELECT current_database()").values()
        rig.rows(change.format(name))
    with rigs.lent() as other:
        assert other.url != rig.url


def _contents(rig: Rig) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all tables, and where the sequences stand."""
    tables = rig.rows("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    found = {
        name: rig.rows(f"SELECT one::text FROM {name} AS one ORDER BY 1")
        for name in (table["name"] for table in tables)
    }
    return found | {"sequences": rig.rows("SELECT * FROM pg_sequences ORDER BY sequencename")}


def _tables(connection: psycopg.Connection[tuple[str]]) -> list[str]:
    rows = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    )
    return [name for (name,) in rows]
