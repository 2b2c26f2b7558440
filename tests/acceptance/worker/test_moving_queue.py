"""The drills of an operator, under a running server, worker and job: upgrade, back up, move."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg
from forge_client.direct.move import Move
from forge_client.settings import QueueConnection
from forge_schema.database.current import HEAD, is_current
from forge_schema.database.pool import Database
from forge_schema.read.jobs import Jobs
from forge_schema.storage import open_store
from support.workers.http_bed import HttpBed, http_bed, ticking

if TYPE_CHECKING:
    from pathlib import Path

    from support.client.command import Command

# Longer than a move takes, however busy the machine is.
TTL_S = 60.0
WAITS = """
import os, pathlib, sys, threading
print("before", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    threading.Event().wait(0.05)
print("after", flush=True)
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "model.bin").write_bytes(b"weights")
"""


def test_a_job_runs_on_and_all_that_it_stores_is_in_the_new_place(
    tmp_path: Path, database_url: str, empty_database_url: str
) -> None:
    gate, target = tmp_path / "gate", new_place(tmp_path, empty_database_url)
    with ExitStack() as outlasting, http_bed(tmp_path, database_url, ttl_s=TTL_S) as made:
        made.worker()
        job = made.script(WAITS, str(gate))
        made.says(job, "before")
        move = Move(QueueConnection(database_url, made.store.url), target, print)
        move.run(tmp_path)

        leave_server(made)
        start_server(made, target, outlasting)
        gate.touch()
        made.succeeds(job)
        move.run(tmp_path)
        all_is_there(made, job)


def test_a_job_runs_on_through_an_upgrade_and_ends_in_the_restored_queue(
    tmp_path: Path, database_url: str, empty_database_url: str, forge: Command
) -> None:
    gate, target = tmp_path / "gate", new_place(tmp_path, empty_database_url)
    with ExitStack() as outlasting, http_bed(tmp_path, database_url, ttl_s=TTL_S) as made:
        made.worker()
        job = made.script(WAITS, str(gate))
        made.says(job, "before")
        with psycopg.connect(database_url) as connection:
            # As if another version had made it.
            connection.execute("COMMENT ON VIEW job_status IS NULL")
        assert HEAD in ran(forge, "db", "upgrade", database_url)
        assert is_current(database_url)
        source = QueueConnection(database_url, made.store.url)
        ran(forge, "backup", tmp_path / "backups", at=source)
        leave_server(made)
        # The queue goes on from the backup, without it.
        late = made.script("print('late')")
        assert "restored" in ran(forge, "restore", tmp_path / "backups", at=target)
        start_server(made, target, outlasting)
        assert made.jobs.statuses([late]) == []
        gate.touch()
        made.succeeds(job)
        all_is_there(made, job)


def new_place(folder: Path, database_url: str) -> QueueConnection:
    """Return an empty database and an empty store."""
    place = folder / "new-store"
    place.mkdir()
    return QueueConnection(database_url, place.as_uri())


def ran(forge: Command, *words: str | Path, at: QueueConnection | None = None) -> str:
    """Run a command with direct access, and return what it said."""
    where = {"FORGE_DATABASE_URL": at.database_url, "FORGE_STORE_URL": at.store()} if at else {}
    ended = forge(*words, **where)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def leave_server(made: HttpBed) -> None:
    """Stop the server, as for a move or a restore."""
    (server,) = made.servers
    assert server.leave() == 0


def start_server(made: HttpBed, target: QueueConnection, outlasting: ExitStack) -> None:
    """Start the server in the new place, and a sweeper there."""
    (server,) = made.servers
    new = {"FORGE_DATABASE_URL": target.database_url, "FORGE_STORE_URL": target.store()}
    server.environment = {**server.environment, **new}
    server.start()
    made.database = outlasting.enter_context(Database(target.database_url))
    outlasting.enter_context(ticking(made.database, TTL_S))
    made.jobs, made.store = Jobs(made.database), open_store(target.store())


def all_is_there(made: HttpBed, job: int) -> None:
    """Assert that the job ran once, and that all it wrote is in the new place."""
    assert made.reasons(job) == ["succeeded"]
    assert made.log(job).split() == [b"before", b"after"]
    assert made.artifacts(job) == {"model.bin": b"weights"}
