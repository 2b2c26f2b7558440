"""Two workers with one name: neither touches the other's jobs, and only one gets the name."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from forge_schema.model.lease import End
from forge_schema.model.states import Reason
from forge_schema.model.worker import Machine
from forge_worker import worker_folder
from forge_worker.attempt_folders import Folders
from forge_worker.runners.process.runner import ProcessRunner
from support.client.command import command
from support.workers.http_bed import http_bed
from support.workers.worker import Bed, Worker, bed, containers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.database import postgres
    from support.waiting import Eventually

WAITS = """
import os, threading
print("up", flush=True)
while not os.path.exists("go"):
    threading.Event().wait(0.05)
"""
# Nothing alive is taken for dead on a busy machine.
SLOW = {"lease_ttl_s": 600, "offline_s": 600, "reconnect_limit_s": 1}
KINDS = ["process", "docker"]


@pytest.fixture(params=KINDS)
def both(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Bed]:
    with bed(request.param, tmp_path, database_url) as made:
        yield made


def let_go(worker: Worker) -> None:
    for work in worker.folder.glob("jobs/*/work"):
        (work / "go").touch()


def refused(worker: Worker) -> bool:
    return "is alive in another folder" in worker.output


def started(made: Bed, **fields: int) -> int:
    """Return a job that runs and waits to be let go."""
    job = made.script(WAITS, **fields)
    made.says(job, "up")
    return job


def test_second_worker_of_a_name_waits_and_leaves_the_jobs_of_the_first_alone(
    both: Bed, eventually: Eventually
) -> None:
    first = both.worker("one", **SLOW)
    job = started(both)
    second = both.begin("two", worker_name=first.name, **SLOW)
    eventually(lambda: refused(second))
    assert "ready" not in second.output
    let_go(first)
    both.succeeds(job)
    assert both.reasons(job) == ["succeeded"]
    assert first.leave() == 0
    # The name is free now, and the second worker gets it by itself.
    eventually(lambda: "ready" in second.output)
    both.succeeds(both.submit("true"))


def test_name_that_stays_in_use_ends_the_second_worker(tmp_path: Path, database_url: str) -> None:
    with bed("process", tmp_path, database_url) as made:
        name = f"two-{made.token}"
        made.registry.register(name, Machine(uuid4(), 1, 1024, 1024, folder_id=uuid4()))
        with made.database.connection() as connection:
            connection.execute("UPDATE worker SET last_seen_at = now() + interval '1 day'")
        second = made.begin("two", lease_ttl_s=1, reconnect_limit_s=1)
        assert second.process.wait(120) == 4
        said = second.output.splitlines()
        assert (
            said[-2]
            == f"forge-worker: worker {name} is alive in another folder or on another machine"
        )
        assert "--replace" in said[-1]


def test_replaced_worker_gives_its_job_back_and_leaves(both: Bed, eventually: Eventually) -> None:
    first = both.worker("one", heartbeat_s=0.2, term_notice_s=10, **SLOW)
    job = started(both)
    second = both.worker("two", worker_name=first.name, replace=True, **SLOW)
    eventually(lambda: not first.running)
    assert first.process.returncode == 4
    assert first.output.count("name_taken") == 1
    assert "start this one with a name of its own" in first.output
    eventually(lambda: both.log(job).count(b"up\n") == 2)
    let_go(second)
    both.succeeds(job)
    assert both.reasons(job) == ["preempted", "succeeded"]


def test_folder_that_starts_again_has_its_name_at_once(
    process: Bed, eventually: Eventually
) -> None:
    first = process.worker("one", **SLOW)
    kept = worker_folder.known_id(first.folder)
    first.kill()
    again = process.worker("one", **SLOW)
    assert worker_folder.known_id(again.folder) == kept is not None
    assert not refused(again)
    eventually(lambda: process.registry.workers()[0]["status"] == "idle")


@contextmanager
def two_queues(kind: str, root: Path, one: str, two: str) -> Iterator[tuple[Bed, Bed]]:
    """Make the beds of two queues on one machine, whose job ids coincide."""
    with ExitStack() as stack:
        beds = []
        for name, url in (("a", one), ("b", two)):
            (root / name).mkdir()
            made = stack.enter_context(bed(kind, root / name, url))
            with made.database.connection() as connection:
                # A copy of the template database has its queue's id.
                connection.execute("UPDATE identity SET queue_id = gen_random_uuid()")
            beds.append(made)
        beds[1].token = beds[0].token
        yield beds[0], beds[1]


@pytest.fixture(params=KINDS)
def queues(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    database_url: str,
    postgres_server: postgres.Server,
    template_database: str,
) -> Iterator[tuple[Bed, Bed]]:
    with (
        postgres_server.database(template_database) as other,
        two_queues(request.param, tmp_path, database_url, other) as made,
    ):
        yield made


def test_workers_of_one_name_in_two_queues_do_not_meet(queues: tuple[Bed, Bed]) -> None:
    workers = []
    for made in queues:
        workers.append(made.worker("same"))
        started(made)
    for made, worker in zip(queues, workers, strict=True):
        let_go(worker)
        made.succeeds(1)
        assert made.reasons(1) == ["succeeded"]


def test_folder_that_comes_to_another_queue_tells_it_nothing_of_the_old_jobs(
    queues: tuple[Bed, Bed], eventually: Eventually
) -> None:
    old, new = queues
    first = old.worker("one", sweep=False, lease_ttl_s=600)
    started(old)
    (root,) = first.folder.glob("jobs/*")
    fence = Folders(root).fence()
    assert fence is not None
    first.kill()
    second = old.begin("one", database_url=new.database.url, store_url=new.store.url)
    eventually(lambda: "ready" in second.output)
    assert list(first.folder.glob("jobs/*")) == []
    assert containers_of(old.token) == []
    # In the queue that it belongs to, the job runs on until its lease expires.
    assert old.leases() == 1
    assert "given back" not in second.output
    assert second.leave() == 0
    old.queue.finish([End(fence, Reason.WORKER_LOST)])
    assert old.reasons(1) == ["worker_lost"]


def test_token_in_two_folders_is_one_worker(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with http_bed(tmp_path, database_url, ttl_s=600, heartbeat_s=0.5) as made:
        first = made.worker("one")
        job = started(made)
        second = made.begin("two", token=made.tokens["one"])
        eventually(lambda: refused(second))
        assert made.job(job)["state"] == "running"
        third = made.worker("three", token=made.tokens["one"], replace=True)
        eventually(lambda: not first.running)
        assert first.process.returncode == 4
        second.send(signal.SIGTERM)
        assert second.process.wait(120) == 0
        eventually(lambda: made.log(job).count(b"up\n") == 2)
        let_go(third)
        made.succeeds(job)
        assert made.reasons(job) == ["preempted", "succeeded"]


def test_reaped_process_is_a_lost_worker_and_no_failure(
    tmp_path: Path, database_url: str, eventually: Eventually
) -> None:
    with bed("process", tmp_path, database_url) as made:
        worker = made.worker()
        job = started(made, max_losses=1)
        runner = ProcessRunner()
        (left,) = runner.leftovers(str(worker_folder.known_id(worker.folder)))
        runner.reap(left)
        eventually(lambda: made.log(job).count(b"up\n") == 2)
        let_go(worker)
        made.succeeds(job)
        assert made.reasons(job) == ["worker_lost", "succeeded"]


@pytest.mark.parametrize("kind", KINDS)
def test_job_of_a_worker_over_http_is_entered_whatever_its_own_name(
    kind: str, tmp_path: Path, database_url: str
) -> None:
    with http_bed(tmp_path, database_url, kind=kind) as made:
        worker = made.worker("one", worker_name=f"my-own-{made.token}")
        assert "ignored=my-own" in worker.output
        job = started(made)
        urls = {"FORGE_DATABASE_URL": database_url, "FORGE_STORE_URL": made.store.url}
        forge = command(tmp_path, **urls)
        entered = forge("exec", str(job), "--", "touch", "go")
        assert entered.returncode == 0, entered.stderr
        made.succeeds(job)
