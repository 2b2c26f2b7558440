"""Behind a real pooler in transaction mode, Forge has its settings and leaves others theirs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from forge_client.backend import CheckStanding
from forge_client.direct.checks import database_checks
from forge_functions.streams.hub import Hub
from forge_schema.database.connections import SETTINGS
from forge_schema.database.migrate import upgrade
from forge_schema.database.pool import Database, DatabaseUnreachable
from forge_schema.model.lease import End
from forge_schema.model.spec import JobSpec
from forge_schema.model.states import Reason, WorkerStatus
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.read.overview import OverviewReader
from forge_schema.sweeper.tick import Tick
from support.at_once import at_once
from support.database import pooler
from support.database.pooler import Pooled
from support.services import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.database.postgres import Server

# What a client sends at its start, and the pooler passes on.
CLIENTS_OWN = ["application_name", "client_encoding", "DateStyle", "TimeZone", "IntervalStyle"]
CLIENTS_OWN += ["standard_conforming_strings"]
SETTINGS_OF = "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name"
CHANGED = "SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> ALL(%s)"
STORED = "SELECT setrole::regrole::text, xmin::text, setconfig FROM pg_db_role_setting"
OLD = "SET statement_timeout = '8s'; SET enable_seqscan = off"
ROOM = Capacity(4, 1 << 20, 1 << 30)
MACHINE = Machine(boot_id=uuid4(), cpus=8, memory_mb=1 << 20, disk_mb=1 << 30)
IGNORED = "ignore_startup_parameters = options"


@pytest.fixture
def pooled(database_url: str, postgres_server: Server, tmp_path: Path) -> Iterator[Pooled]:
    require(pooler.is_here(), "PgBouncer (Debian's package pgbouncer)")
    with pooler.pooled(tmp_path, postgres_server, database_url) as made:
        yield made


def settings(url: str) -> dict[str, str]:
    """Return the settings that a client of the pooler finds."""
    with psycopg.connect(url) as client:
        return dict(client.execute(SETTINGS_OF, [[*SETTINGS]]).fetchall())


def changed(url: str) -> list[tuple[str, str]]:
    """Return the settings that anybody has changed in the server connection's session."""
    with psycopg.connect(url) as client:
        return client.execute(CHANGED, [CLIENTS_OWN]).fetchall()


def work(database: Database) -> None:
    """Submit, claim, renew, end, report and sweep."""
    queue = Queue(database, actor="user:ann")
    queue.submit([JobSpec(name="j", owner="ann", command=["true"])])
    worker = Registry(database, actor="user:ann").register("w", MACHINE)
    (grant,) = queue.claim(Lanes(database, worker, refresh_s=-1), ROOM)
    assert queue.renew(worker, MACHINE.boot_id, [grant.fence], WorkerStatus.BUSY).standings
    assert queue.finish([End(grant.fence, Reason.SUCCEEDED)])
    assert OverviewReader(database).now(jobs=1)
    Tick(Queue(database, actor="sweeper"), every=timedelta(days=1)).run()


@pytest.mark.parametrize("statement_s", [30.0, 8.0])
def test_a_neighbour_keeps_its_settings_and_forge_has_its_own(
    pooled: Pooled, statement_s: float
) -> None:
    before = settings(pooled.neighbour), settings(pooled.elsewhere)
    with Database(pooled.forge, prepare=False, statement_s=statement_s) as database:
        work(database)
        with database.connection() as connection:
            found = connection.execute(SETTINGS_OF, [[*SETTINGS]]).fetchall()
    assert {row["name"]: row["current_setting"] for row in found} == SETTINGS
    assert changed(pooled.forge) == []
    assert (settings(pooled.neighbour), settings(pooled.elsewhere)) == before


@pytest.mark.parametrize("left", ["SELECT", OLD], ids=["as usual", "by an older Forge"])
def test_a_server_connection_from_before_is_replaced(pooled: Pooled, left: str) -> None:
    with psycopg.connect(pooled.forge, autocommit=True) as older:
        older.execute(left)
    with Database(pooled.forge, prepare=False):
        assert settings(pooled.forge) == SETTINGS
        assert changed(pooled.forge) == []


@pytest.mark.parametrize("more", [(), (IGNORED,)], ids=["refused", "ignored"])
def test_a_pooler_that_takes_no_settings_is_noticed(
    database_url: str, postgres_server: Server, tmp_path: Path, more: tuple[str, ...]
) -> None:
    require(pooler.is_here(), "PgBouncer (Debian's package pgbouncer)")
    with pooler.pooled(tmp_path, postgres_server, database_url, *more) as pooled:
        for _ in range(3):
            with Database(pooled.forge) as database:
                work(database)
        assert settings(pooled.forge) == SETTINGS
        assert changed(pooled.forge) == []


def test_the_doctor_says_what_to_set_behind_a_pooler(
    pooled: Pooled, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, found = database_checks(pooled.forge)
    assert (found.name, found.standing) == ("connections", CheckStanding.WARN)
    assert "FORGE_PREPARE=false" in found.hint
    monkeypatch.setenv("FORGE_PREPARE", "false")
    assert database_checks(pooled.forge)[-1].standing is CheckStanding.OK
    assert [one.standing for one in database_checks(database_url)] == [CheckStanding.OK] * 3
    assert changed(pooled.forge) == []


@pytest.mark.parametrize("prepare", [True, False])
def test_a_database_of_its_own_limit_has_it(database_url: str, *, prepare: bool) -> None:
    with Database(database_url, prepare=prepare, statement_s=0.2) as database:
        worker = Registry(database, actor="user:ann").register("w", MACHINE)
        queue = Queue(database, actor="user:ann")
        with psycopg.connect(database_url) as holder:
            holder.execute("SELECT FROM worker FOR UPDATE")
            with pytest.raises(DatabaseUnreachable) as late:
                queue.renew(worker, MACHINE.boot_id, [], WorkerStatus.IDLE)
    assert isinstance(late.value.__cause__, psycopg.errors.QueryCanceled)


def test_a_report_has_the_limit_and_the_usual_planner(pooled: Pooled) -> None:
    with (
        Database(pooled.forge, prepare=False, statement_s=8) as database,
        database.reporting() as connection,
    ):
        found = connection.execute(SETTINGS_OF, [[*SETTINGS]]).fetchall()
    report = {row["name"]: row["current_setting"] for row in found}
    assert (report["statement_timeout"], report["enable_hashjoin"]) == ("8s", "on")
    assert changed(pooled.forge) == []


def test_a_connection_of_its_own_starts_with_the_settings(database_url: str) -> None:
    url = f"{database_url}&options=-c%20work_mem%3D7MB%20-c%20enable_seqscan%3Don"
    with Database(url) as database, database.connection() as connection:
        found = connection.execute(SETTINGS_OF, [["work_mem", *SETTINGS]]).fetchall()
        stored = connection.execute(CHANGED, [[]]).fetchall()
    assert {row["name"]: row["current_setting"] for row in found} == {
        **SETTINGS,
        "work_mem": "7MB",
    }
    assert stored == []


def test_nobody_listens_on_a_session_of_the_pooler(pooled: Pooled) -> None:
    stopping = Event()
    hub = Hub(pooled.forge, stopping, listens=False)

    async def listen() -> None:
        with hub.ear(1):
            stopping.set()

    asyncio.run(listen())
    hub.join()
    with psycopg.connect(pooled.forge) as client:
        assert client.execute("SELECT pg_listening_channels()").fetchall() == []


def test_many_at_once_store_them_once(database_url: str) -> None:
    def opened() -> None:
        with Database(database_url, prepare=False):
            pass

    at_once(*[opened] * 8)
    with psycopg.connect(database_url, autocommit=True) as admin:
        mine = f"{STORED} WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = %s)"
        first = admin.execute(mine, [admin.info.dbname]).fetchall()
        opened()
        assert admin.execute(mine, [admin.info.dbname]).fetchall() == first
    assert [(role, len(stored)) for role, _, stored in first] == [("postgres", len(SETTINGS))]


def test_an_upgrade_has_no_limit(database_url: str) -> None:
    with Database(database_url, prepare=False), psycopg.connect(database_url) as admin:
        admin.execute("INSERT INTO queue (name) VALUES ('q')")
        admin.execute(
            "ALTER TABLE queue ADD CONSTRAINT slow"
            " CHECK (current_setting('statement_timeout') = '0') NOT VALID"
        )
    upgrade(database_url)
    with psycopg.connect(database_url) as admin:
        valid = "SELECT convalidated FROM pg_constraint WHERE conname = 'slow'"
        assert admin.execute(valid).fetchall() == [(True,)]
