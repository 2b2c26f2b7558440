"""Whether a database has this version's schema: only a complete upgrade says so."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from forge_schema.database.current import is_current
from forge_schema.database.migrate import upgrade

CHANGED = {
    "a revision that this version does not know yet": "UPDATE alembic_version SET version_num = ''",
    "views of another version": """
        DROP VIEW job_status CASCADE; CREATE VIEW job_status AS SELECT 1 AS one
    """,
    "what another version made": "COMMENT ON VIEW job_status IS 'another'",
    "an upgrade that died before its end": "COMMENT ON VIEW job_status IS NULL",
}
LATEST_MONTH = """
    SELECT count(*) FROM pg_inherits
    WHERE inhrelid::regclass::text = 'event' || to_char(
        (now() AT TIME ZONE 'UTC') + make_interval(months => 2), '_YYYY_MM')
"""
ASK = """
import sys
from forge_schema.database.current import is_current
asked = is_current(sys.argv[1])
sys.exit(10 * asked + ("alembic" in sys.modules))
"""


def test_after_an_upgrade_it_is_current_and_not_before(empty_database_url: str) -> None:
    assert not is_current(empty_database_url)
    upgrade(empty_database_url)
    assert is_current(empty_database_url)


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_what_differs_is_upgraded(empty_database_url: str, change: str) -> None:
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        before = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        connection.execute(change)
    assert not is_current(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", before)
    upgrade(empty_database_url)
    assert is_current(empty_database_url)


def test_the_months_that_are_due_are_added(database_url: str) -> None:
    upgrade(database_url)  # the template may date from last month
    with psycopg.connect(database_url) as connection:
        month = "to_char((now() AT TIME ZONE 'UTC') + make_interval(months => 2), '_YYYY_MM')"
        connection.execute(f"DO $$ BEGIN EXECUTE 'DROP TABLE event' || {month}; END $$")
        assert connection.execute(LATEST_MONTH).fetchone() == (0,)
    assert is_current(database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute(LATEST_MONTH).fetchone() == (1,)


def test_it_is_told_without_loading_what_migrates(database_url: str) -> None:
    told = subprocess.run([sys.executable, "-c", ASK, database_url], check=False)
    assert told.returncode == 10
