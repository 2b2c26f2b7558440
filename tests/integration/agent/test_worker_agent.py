"""The agent as a process: its start, its requirements, and the failures that it survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
from forge_schema.database.pool import Database
from support.database.crashing_server import CrashingServer, bed_on, crashing_server
from support.store.storage import CREDENTIALS, moto_server, new_bucket, proxy, use_credentials
from support.workers.worker import Bed, Worker, bed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

    from support.waiting import Eventually

WAITS = """
import os, pathlib, threading
print("up", flush=True)
turn = 0
while not pathlib.Path("go").exists():
    turn += 1
    threading.Event().wait(0.05)
pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "result").write_text("good")
print("end", flush=True)
"""


@pytest.fixture
def crashing() -> Iterator[CrashingServer]:
    with crashing_server() as server:
        yield server


# Longer than a worker retries one statement before it reports a failed step.
GIVES_UP_S = 60


def said_again(worker: Worker, before: int) -> bool:
    return worker.output.count("step_failed") > before


def let_go(made: Bed) -> None:
    for folder in made.workers[0].folder.glob("jobs/*/work"):
        (folder / "go").touch()


def test_job_that_ends_while_the_database_is_down_counts(
    crashing: CrashingServer, tmp_path: Path, eventually: Eventually
) -> None:
    with bed_on(crashing, tmp_path) as made:
        worker = made.worker()
        job = made.script(WAITS)
        made.says(job, "up")
        crashing.crash()
        let_go(made)
        eventually(lambda: "step_failed" in worker.output, timeout=GIVES_UP_S)
        work = tmp_path / "one" / "jobs"
        eventually(lambda: any(work.glob("*/output/result")))
        crashing.start()
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]
        assert made.log(job) == b"up\nend\n"
        assert made.artifacts(job) == {"result": b"good"}
        assert "Traceback" not in worker.output


def test_running_job_does_not_notice_that_the_database_crashed(
    crashing: CrashingServer, tmp_path: Path, eventually: Eventually
) -> None:
    with bed_on(crashing, tmp_path) as made:
        # The queue leaves leases alone for one TTL after its start, and a busy machine needs more
        # than the other tests' few seconds to connect and renew.
        worker = made.worker(lease_ttl_s=60)
        job = made.script(WAITS)
        made.says(job, "up")
        for _ in range(2):
            crashing.crash()
            failures = worker.output.count("step_failed")
            eventually(partial(said_again, worker, failures), timeout=GIVES_UP_S)
            crashing.start()
        with Database(made.database.url) as database:
            seen = "SELECT last_seen_at > pg_postmaster_start_time() FROM worker"
            with database.connection() as connection:

                def heard_again() -> object:
                    return next(iter(connection.execute(seen).fetchall()[0].values()))

                eventually(heard_again, timeout=GIVES_UP_S)
        assert made.job(job)["state"] == "running"
        # LISTEN is back as well: the cancel needs no renewal.
        let_go(made)
        made.succeeds(job)
        assert made.reasons(job) == ["succeeded"]


def test_worker_that_leaves_while_the_database_is_down_leaves_well(
    crashing: CrashingServer, tmp_path: Path
) -> None:
    with bed_on(crashing, tmp_path) as made:
        worker = made.worker(sweep=False)
        crashing.crash()
        worker.send(signal.SIGTERM)
        assert worker.process.wait(120) == 0
        crashing.start()


def test_second_agent_in_one_folder_is_refused(process: Bed) -> None:
    process.worker()
    second = process.begin()
    assert second.process.wait(120) == 1
    assert f"another worker uses {second.folder}" in second.output
    assert "Traceback" not in second.output
    process.succeeds(process.script("print('fine')"))


BAD_SETTINGS: list[tuple[dict[str, str], int, str]] = [
    ({"store_url": "ftp://x"}, 1, "has an unknown scheme"),
    ({"store_url": "file:///proc/no/store"}, 1, "cannot be written"),
    ({"worker_dir": "/proc/no"}, 1, "can write to: --worker-dir (FORGE_WORKER_DIR)"),
    ({"allow_processes": "False"}, 1, "processes are not allowed"),
    ({"cpus": "none"}, 2, "--cpus"),
    ({"labels": "gpu"}, 2, "write labels as name=value"),
    ({"runner": "vm"}, 2, "--runner"),
]


def test_bad_setting_is_a_clear_message(process: Bed) -> None:
    workers = [process.begin(f"w{n}", **bad[0]) for n, bad in enumerate(BAD_SETTINGS)]
    for worker, (_, code, said) in zip(workers, BAD_SETTINGS, strict=True):
        assert worker.process.wait(120) == code, worker.output
        assert said in worker.output
        assert "Traceback" not in worker.output


def test_settings_that_are_absent_are_named(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "forge_worker.main"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "--database-url" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_flags_come_before_variables(process: Bed) -> None:
    environment = {**os.environ, **process.settings("one"), "FORGE_LABELS": "zone=env,rack=7"}
    flags = ["--labels", "zone=flag", "--no-sweep", "--worker-name", f"flagged-{process.token}"]
    said = process.root / "flagged.log"
    with said.open("wb") as log:
        # What starts it may have signals blocked.
        agent = subprocess.Popen(
            ["env", "--block-signal", sys.executable, "-m", "forge_worker.main", *flags],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        job = process.script("print('here')", labels={"zone": "flag"})
        process.succeeds(job)
        row = process.registry.workers()[0]
        assert row["name"] == f"flagged-{process.token}"
        assert row["labels"]["zone"] == "flag"
        assert "rack" not in row["labels"]
    finally:
        agent.terminate()
        assert agent.wait(60) == 0


def test_job_for_another_label_stays_ready(process: Bed) -> None:
    process.worker(labels="zone=eu")
    other = process.script("print('no')", labels={"zone": "us"})
    mine = process.script("print('yes')", labels={"zone": "e*"})
    process.succeeds(mine)
    assert process.job(other)["state"] == "ready"


def test_worker_without_a_name_keeps_the_one_that_it_made_up(process: Bed) -> None:
    for _ in range(2):
        worker = process.worker(worker_name="")
        assert worker.leave() == 0
    names = [row["name"] for row in process.registry.workers()]
    assert names == [(process.root / "one" / "name").read_text().strip()]


def test_leases_are_renewed_while_a_download_hangs_and_a_lost_one_ends_it(
    tmp_path: Path,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    use_credentials(monkeypatch)
    project = tmp_path / "project"
    project.mkdir()
    (project / "data").write_bytes(os.urandom(16 << 20))
    with (
        moto_server() as endpoint,
        new_bucket(endpoint) as bucket,
        proxy(endpoint) as slow,
        bed("process", tmp_path, database_url, bucket.url(slow.url), CREDENTIALS) as made,
    ):
        job = made.submit("true", folder=project, max_losses=1)
        trickling = Trickle(bucket.client, bucket.name)
        slow.fault = trickling
        worker = made.worker(lease_ttl_s=8)
        eventually(lambda: trickling.pieces > 20)
        # More than the lease's time has passed since the claim, and it was renewed meanwhile.
        assert made.job(job)["state"] == "running"
        assert made.job(job)["phase"] == "preparing"
        with made.database.connection() as connection:
            connection.execute("UPDATE lease SET nonce = gen_random_uuid()")
        eventually(lambda: not list(worker.folder.glob("jobs/*")))
        assert "accepted=" not in worker.output
        slow.fault = None
        # The lease that nobody holds runs out.
        made.succeeds(job)
        assert made.reasons(job) == ["worker_lost", "succeeded"]


class Trickle:
    """Answers a download a piece at a time, a piece every half second."""

    def __init__(self, client: object, bucket: str) -> None:
        self._client, self._bucket = client, bucket
        self.pieces = 0

    def __call__(self, handler: BaseHTTPRequestHandler, _body: bytes) -> bool:
        if handler.command != "GET" or "/bundles/" not in handler.path:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(16 << 20))
        handler.send_header("ETag", '"x"')
        handler.end_headers()
        try:
            for _ in range(128):
                handler.wfile.write(b"x" * (1 << 17))
                self.pieces += 1
                Event().wait(0.5)
        except OSError:
            handler.close_connection = True
        return True


def test_starting_worker_clears_what_dead_writers_left_in_the_store(
    process: Bed, eventually: Eventually
) -> None:
    unfinished = process.root / "store" / ".forge-tmp"
    unfinished.mkdir()
    old, new = unfinished / "old", unfinished / "new"
    for path in (old, new):
        path.touch()
    os.utime(old, (1, 1))
    process.worker()
    eventually(lambda: not old.exists())
    assert new.exists()
