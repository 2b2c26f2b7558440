"""The connection that is kept for the next statement is nobody's: whoever waits gets it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forge_schema.database import pool as databases
from forge_schema.database.pool import Database

if TYPE_CHECKING:
    import pytest
    from support.queue.rig import Rig

OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'spare'
"""


def test_threads_that_want_the_only_connection_all_get_it(rig: Rig) -> None:
    with Database(rig.url, size=1, patience_s=20) as database, ThreadPoolExecutor(8) as threads:

        def both(_: int) -> bool:
            with database.connection() as connection:
                connection.execute("SELECT")
            return bool(database.rows("health"))

        assert all(threads.map(both, range(400)))


def test_kept_connection_that_the_server_closed_is_replaced(rig: Rig) -> None:
    with Database(f"{rig.url}&application_name=spare") as database:
        assert database.rows("health")
        (spare,) = database._spare
        rig.rows(OTHERS)
        assert database.rows("health", again=True)
        assert spare.closed
        assert spare not in database._spare


def test_kept_connection_goes_back_to_the_pool(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(rig.url, size=1) as database:
        assert database.rows("health")
        (spare,) = database._spare
        database._answers._at_rest()
        assert list(database._pool._pool) == [spare]
        # The pool also sees one that is always in use, since it replaces old ones.
        monkeypatch.setattr(databases, "CHECK_AFTER_S", -1.0)
        assert database.rows("health")
        assert list(database._pool._pool) == [spare]
        monkeypatch.undo()
        assert database.rows("health")
    assert spare.closed
