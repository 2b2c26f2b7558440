"""The sweeper as a process: its health, two at once, and one that dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import urlopen
from uuid import uuid4

import psycopg
import pytest
from forge_schema.database.pool import Database
from forge_schema.model.spec import JobSpec
from forge_schema.model.worker import Capacity, Machine
from forge_schema.queue.lanes import Lanes
from forge_schema.queue.queue import Queue
from forge_schema.queue.registry import Registry
from forge_schema.sweeper.main import health_server
from forge_schema.sweeper.sweeper import JOB_DEFAULTS, WAKE_EVERY_S, Sweeper
from forge_schema.sweeper.tick import Tick

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.waiting import Eventually

PERIOD_S = 0.3


@dataclass
class Running:
    """A sweeper process and its own log."""

    process: subprocess.Popen[bytes]
    said: Path

    @property
    def output(self) -> str:
        return self.said.read_text()

    @property
    def started(self) -> re.Match[str] | None:
        return re.search(r"health=(\d+)", self.output)

    def health(self) -> int:
        """Return the status of the health endpoint, 0 when nothing answers."""
        assert self.started
        return answered(int(self.started[1]))


def answered(port: int) -> int:
    """Return the status of a health endpoint, 0 when nothing answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        refusal.close()
        return refusal.code
    except URLError:
        return 0


@contextmanager
def sweeper(url: str, said: Path, **settings: object) -> Iterator[Running]:
    given = {"sweep_s": PERIOD_S, "lease_ttl_s": 1, "health_port": 0, **settings}
    environment = {f"FORGE_{name.upper()}": str(value) for name, value in given.items()}
    with said.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "forge_schema.sweeper.main"],
            env={**os.environ, "FORGE_DATABASE_URL": url, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        yield Running(process, said)
    finally:
        process.kill()
        process.wait()


def shut(url: str, *, out: bool) -> None:
    """Let nobody into a database and end who is in it, or let them in again."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    name = str(parts["dbname"])
    elsewhere = psycopg.conninfo.make_conninfo(url, dbname="postgres")
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {not out}')
        if out:
            ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(ends, [name])


def leased(database: Database, count: int) -> list[int]:
    """Submit jobs and lease them to a worker that never renews; the leases are over at once."""
    queue = Queue(database, actor="test", ttl=timedelta(milliseconds=1))
    boot = uuid4()
    worker = Registry(database, actor="test").register("w", Machine(boot, 1000, 1 << 20, 1 << 30))
    spec = JobSpec(name="j", owner="ann", command=["true"], max_losses=0)
    jobs = queue.submit([spec] * count)
    lanes = Lanes(database, worker)
    while queue.claim(lanes, Capacity(1000, 1 << 20, 1 << 30), count=100):
        pass
    return jobs


def test_health_is_red_while_the_database_is_gone_and_green_again_afterwards(
    database_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    with sweeper(database_url, tmp_path / "log") as running:
        eventually(lambda: running.started and running.health() == 200)
        shut(database_url, out=True)
        try:
            eventually(lambda: running.health() == 503)
        finally:
            shut(database_url, out=False)
        eventually(lambda: running.health() == 200)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(120) == 0
        assert "Traceback" not in running.output


def test_health_turns_red_after_three_periods_without_a_tick(database_url: str) -> None:
    now = [0.0]
    with Database(database_url) as database:
        made = Sweeper(Tick(Queue(database, actor="test")), period_s=10, clock=lambda: now[0])
        server = health_server(made, "127.0.0.1", 0)
        Thread(target=server.serve_forever, daemon=True).start()

        def health(seconds: float, *, well: bool) -> int:
            """Return the status at `seconds`, after a sweep; it finds the leases only if `well`."""
            now[0] = seconds
            with psycopg.connect(database_url, autocommit=True) as connection:
                connection.execute("UPDATE sweeper SET swept_at = NULL")
                if not well:
                    connection.execute("ALTER TABLE lease RENAME TO away")
                made.tick()
                connection.execute("ALTER TABLE IF EXISTS away RENAME TO lease")
            return answered(server.server_address[1])

        try:
            assert [health(seconds, well=False) for seconds in (30, 30.1)] == [200, 503]
            assert health(40, well=True) == 200
            assert [health(seconds, well=False) for seconds in (70, 70.1)] == [200, 503]
        finally:
            server.shutdown()
            server.server_close()


def test_health_is_green_once_a_tick_has_promoted_a_job(
    database_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    with sweeper(database_url, tmp_path / "log") as running, Database(database_url) as database:
        eventually(lambda: running.started)
        queue = Queue(database, actor="test")
        job = queue.submit([JobSpec(name="j", owner="ann", command=["true"], delay_s=1.5)])[0]
        state = "SELECT state FROM job_status WHERE job_id = %s"

        def promoted() -> bool:
            with database.connection() as connection:
                return bool(connection.execute(state, [job]).fetchall()[0]["state"] == "ready")

        eventually(promoted)
        # Three periods of this sweeper are less than a busy machine may take for a tick.
        eventually(lambda: running.health() == 200)


def test_two_sweepers_of_which_one_is_killed_move_each_lease_once(
    database_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    with (
        Database(database_url) as database,
        sweeper(database_url, tmp_path / "one") as one,
        sweeper(database_url, tmp_path / "two") as two,
    ):
        eventually(lambda: one.started and two.started)
        jobs = leased(database, 3000)
        ended = "SELECT job_id, count(*) AS times FROM attempt GROUP BY job_id"
        with database.connection() as connection:
            eventually(lambda: connection.execute(ended).fetchall(), every=0.001)
            one.process.kill()
            eventually(lambda: len(connection.execute(ended).fetchall()) == len(jobs))
            assert {row["times"] for row in connection.execute(ended)} == {1}
            reasons = connection.execute("SELECT DISTINCT reason FROM attempt").fetchall()
            assert [row["reason"] for row in reasons] == ["worker_lost"]
            outcomes = connection.execute("SELECT state FROM outcome").fetchall()
            assert [row["state"] for row in outcomes] == ["dead"] * len(jobs)
            assert connection.execute("SELECT job_id FROM lease").fetchall() == []
        eventually(lambda: two.health() == 200)


def test_no_tick_is_dropped_doubled_or_overlapped(database_url: str) -> None:
    assert JOB_DEFAULTS == {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
    with Database(database_url) as database:
        made = Sweeper(Tick(Queue(database, actor="test")), period_s=60)
        made.start()
        try:
            jobs = made._scheduler.get_jobs()
            for job in jobs:
                assert (job.misfire_grace_time, job.coalesce, job.max_instances) == (None, True, 1)
            assert {job.trigger.interval.total_seconds() for job in jobs} == {60, WAKE_EVERY_S}
        finally:
            made.end()


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"database_url": "postgresql://postgres@127.0.0.1:1/x"}, 1, "does not answer"),
        ({"sweep_s": "soon"}, 2, "--sweep-s"),
        ({"keep_jobs_days": "30"}, 2, "set the store's URL"),
        ({"health_host": "192.0.2.1"}, 1, "Cannot assign"),
    ],
)
def test_bad_setting_is_a_clear_message(
    database_url: str, tmp_path: Path, settings: dict[str, str], code: int, said: str
) -> None:
    with sweeper(database_url, tmp_path / "log", **settings) as running:
        assert running.process.wait(120) == code
        assert said in running.output
        assert "Traceback" not in running.output
