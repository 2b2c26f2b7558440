"""A job's resources serve others once it has ended, while its output is still being stored."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from forge_schema.explain import explain
from forge_schema.model.explanation import Chance
from forge_schema.model.spec import Resources
from support.store.storage import CREDENTIALS, moto_server, new_bucket, proxy, use_credentials
from support.workers.asked import asked
from support.workers.http_bed import http_bed
from support.workers.worker import Bed, Worker, bed, containers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from support.nvml.fake import FakeNvml
    from support.waiting import Eventually

# Writes its name to an output file, and on request waits until it is told to end.
WRITES = """
import os, pathlib, sys, threading
name, waits = sys.argv[1:]
print("on", os.environ["CUDA_VISIBLE_DEVICES"] or "no GPU", flush=True)
while waits == "waits" and not pathlib.Path("go").exists():
    threading.Event().wait(0.02)
if name:
    pathlib.Path(os.environ["FORGE_OUTPUT_DIR"], "name").write_text(f"output of {name}")
"""
ALL: dict[str, Any] = {"cpus": 4, "memory_mb": 4096}
# A lease that lasts until an agent is back.
LASTS: dict[str, Any] = {"lease_ttl_s": 60}


class Held:
    """Leaves every upload of a job's output unanswered until that job is let go."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[Event, Event]] = {}

    def hold(self, name: str) -> None:
        self._jobs[name] = (Event(), Event())

    def came(self, name: str) -> bool:
        return self._jobs[name][0].wait(120)

    def let_go(self, *names: str) -> None:
        for name in names or tuple(self._jobs):
            self._jobs[name][1].set()

    def __call__(self, _handler: BaseHTTPRequestHandler, body: bytes) -> bool:
        for name, (came, go) in self._jobs.items():
            if f"output of {name}".encode() in body:
                came.set()
                go.wait(300)
        return False


@dataclass
class Desk:
    """A bed of workers and its store, in which a test holds the output of some jobs."""

    made: Bed
    held: Held

    def submit(self, name: str = "", *, waits: bool = False, **needs: Any) -> int:  # noqa: ANN401  fields of all types
        """Submit a job that writes its name, and leave its output in the air."""
        if name:
            self.held.hold(name)
        needed = Resources(**{"cpus": 0.5, "memory_mb": 256, "disk_mb": 100, **needs})
        words = (name, "waits" if waits else "ends")
        return self.made.script(WRITES, *words, resources=needed)

    def lent(self, worker: Worker) -> dict[int, dict[str, Any]]:
        """Return each job with its share, as the worker tells it."""
        told = json.loads((worker.folder / "state.json").read_text())
        return {job["job"]: job for job in told["jobs"]}


@contextmanager
def desk(
    kind: str, root: Path, database_url: str, environment: dict[str, str], *, http: bool = False
) -> Iterator[Desk]:
    with moto_server() as endpoint, new_bucket(endpoint) as bucket, proxy(endpoint) as slow:
        slow.fault = held = Held()
        url = bucket.url(slow.url)
        if http:
            with http_bed(root, database_url, kind=kind, store_url=url) as made:
                made.environment = environment
                yield from _held_in(made, held)
        else:
            with bed(kind, root, database_url, url, {**CREDENTIALS, **environment}) as made:
                yield from _held_in(made, held)


def _held_in(made: Bed, held: Held) -> Iterator[Desk]:
    try:
        yield Desk(made, held)
    finally:
        held.let_go()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_credentials(monkeypatch)


@pytest.mark.parametrize("http", [False, True], ids=["sql", "http"])
def test_next_job_has_the_gpu_and_the_cpus_while_the_output_of_the_first_is_stored(
    tmp_path: Path, database_url: str, nvml: FakeNvml, eventually: Eventually, *, http: bool
) -> None:
    nvml.gpu("GPU-a")
    shared = {"FORGE_LOCK_DIR": str(tmp_path / "locks"), **nvml.environment}
    with desk("process", tmp_path, database_url, shared, http=http) as here:
        made = here.made
        # The jobs follow at once: nothing waits for the next poll.
        worker = made.worker(gpus="all", disk_mb=1000, poll_s=600)
        first = here.submit("first", gpus=1, disk_mb=600, **ALL)
        assert here.held.came("first")
        second = here.submit(gpus=1, disk_mb=300, **ALL)
        made.succeeds(second)
        assert made.log(second) == made.log(first) == b"on GPU-a\n"
        assert made.job(first)["phase"] == "finishing"
        # Disk is lent until the folder is removed.
        third = here.submit(gpus=1, disk_mb=600, **ALL)
        eventually(lambda: _short(made, third) == {"disk_mb": 400})
        # Until it is written again, the file may be the one from before the second.
        share = itemgetter("job", "cpus", "memory_mb", "disk_mb", "gpus")
        only_disk = (first, 0, 0, 600)
        eventually(lambda: [*map(share, here.lent(worker).values())] == [(*only_disk, [])])
        assert "ended, and holds only its 600 MiB of disk" in asked(made, "--status").stdout
        here.held.let_go()
        for job in (first, third):
            made.succeeds(job)
        assert made.artifacts(first) == {"name": b"output of first"}
        # GPUs count until the program ends, and nothing of that until it is stored.
        (one,), (two,) = made.jobs.attempts(first), made.jobs.attempts(second)
        assert 0 < one["gpu_seconds"] <= (two["claimed_at"] - one["claimed_at"]).total_seconds()
        assert two["finished_at"] < one["finished_at"]


def _short(made: Bed, job: int) -> dict[str, object]:
    """Return what a worker has too little of for a job, and how much of it is free."""
    (chance,) = explain(made.database, job).workers
    assert chance.chance in {Chance.BUSY, Chance.STARTS}
    return {
        asked.name: asked.free
        for asked in chance.requirements
        if isinstance(asked.free, int | float)
        and isinstance(asked.wanted, int | float)
        and asked.free < asked.wanted
    }


def test_no_more_jobs_are_stored_at_once_than_run_at_once(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with desk("process", tmp_path, database_url, {}) as here:
        made = here.made
        worker = made.worker(max_jobs=1)
        first, second = here.submit("first"), here.submit("second")
        for name in ("first", "second"):
            assert here.held.came(name)
        third = here.submit("third")
        eventually(lambda: here.lent(worker).keys() == {first, second})
        eventually(lambda: here.lent(worker)[second]["phase"] == "finishing")
        assert [here.lent(worker)[job]["cpus"] for job in (first, second)] == [0, 0.5]
        assert made.job(third)["state"] == "ready"
        # It is the turn of the second as soon as the first is stored.
        here.held.let_go("first")
        assert here.held.came("third")
        assert made.job(second)["state"] == "running"
        here.held.let_go()
        for job in (first, second, third):
            made.succeeds(job)


def test_agent_killed_while_it_stores_lends_nothing_twice(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with desk("docker", tmp_path, database_url, {}) as here:
        made = here.made
        worker = made.worker(disk_mb=1000, **LASTS)
        first = here.submit("first", disk_mb=600, **ALL)
        assert here.held.came("first")
        second = here.submit("second", waits=True, disk_mb=300, **ALL)
        made.says(second, "on no GPU")
        worker.kill()
        # Neither the CPUs of the one nor the disk of the other are there for these.
        cpus, disk = here.submit(**{**ALL, "disk_mb": 50}), here.submit(disk_mb=500)
        worker = made.worker(disk_mb=1000, **LASTS)
        assert worker.output.count("job_adopted") == 2
        eventually(lambda: here.lent(worker).keys() == {first, second})
        assert [here.lent(worker)[job]["cpus"] for job in (first, second)] == [0, 4]
        eventually(lambda: _short(made, cpus) == {"cpus": 0, "memory_mb": 0})
        eventually(lambda: _short(made, disk)["disk_mb"] == 100)
        (folder,) = worker.folder.glob(f"jobs/{second}-*")
        (folder / "work" / "go").touch()
        here.held.let_go()
        for job in (first, second, cpus, disk):
            made.succeeds(job)
            assert made.reasons(job) == ["succeeded"]
        assert made.artifacts(first) == {"name": b"output of first"}
        assert made.artifacts(second) == {"name": b"output of second"}


def test_container_is_removed_after_the_report(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with desk("docker", tmp_path, database_url, {}) as here:
        made = here.made
        made.worker()
        job = here.submit("first")
        assert here.held.came("first")
        # Its end waits for what must be stored, and not for the engine.
        assert len(containers_of(made.token)) == 1
        here.held.let_go()
        made.succeeds(job)
        eventually(lambda: containers_of(made.token) == [])


def test_later_agent_stores_the_rest_while_the_gpu_serves_another(
    tmp_path: Path, database_url: str, nvml: FakeNvml
) -> None:
    nvml.gpu("GPU-a")
    shared = {"FORGE_LOCK_DIR": str(tmp_path / "locks"), **nvml.environment}
    with desk("process", tmp_path, database_url, shared) as here:
        made = here.made
        worker = made.worker(gpus="all", **LASTS)
        first = here.submit("first", gpus=1)
        assert here.held.came("first")
        with made.database.connection() as connection:
            (row,) = connection.execute("SELECT clock_timestamp() AS now").fetchall()
        worker.kill()
        second = here.submit(gpus=1)
        made.worker(gpus="all", **LASTS)
        made.succeeds(second)
        assert made.job(first)["state"] == "running"
        here.held.let_go()
        made.succeeds(first)
        (attempt,) = made.jobs.attempts(first)
        assert attempt["reason"] == "succeeded"
        assert 0 < attempt["gpu_seconds"] <= (row["now"] - attempt["claimed_at"]).total_seconds()
