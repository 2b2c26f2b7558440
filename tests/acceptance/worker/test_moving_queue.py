"""A queue moves to another database and store under a running server, worker and job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from forge_client.direct.move import Move
from forge_client.settings import Connection
from forge_schema.database.pool import Database
from forge_schema.read.jobs import Jobs
from forge_schema.storage import open_store
from support.workers.http_bed import http_bed, ticking

if TYPE_CHECKING:
    from pathlib import Path

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
    gate, place = tmp_path / "gate", tmp_path / "new-store"
    place.mkdir()
    target = Connection(empty_database_url, place.as_uri())
    with ExitStack() as outlasting, http_bed(tmp_path, database_url, ttl_s=TTL_S) as made:
        made.worker()
        job = made.script(WAITS, str(gate))
        made.says(job, "before")
        move = Move(Connection(database_url, made.store.url), target, print)
        move.run(tmp_path)

        (server,) = made.servers
        assert server.leave() == 0
        new = {"FORGE_DATABASE_URL": target.database_url, "FORGE_STORE_URL": target.store()}
        server.environment = {**server.environment, **new}
        server.start()
        made.database = outlasting.enter_context(Database(target.database_url))
        outlasting.enter_context(ticking(made.database, TTL_S))
        made.jobs, made.store = Jobs(made.database), open_store(target.store())
        gate.touch()
        made.succeeds(job)
        move.run(tmp_path)

        assert made.reasons(job) == ["succeeded"]
        assert made.log(job).split() == [b"before", b"after"]
        assert made.artifacts(job) == {"model.bin": b"weights"}
