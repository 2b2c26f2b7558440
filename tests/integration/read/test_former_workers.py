"""History says who ran what, even if that worker was removed and its name given to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.access.worker_tokens import WorkerTokens
from forge_schema.explain import explain
from forge_schema.job_filter import parse
from forge_schema.model.states import Reason, WorkerKind
from forge_schema.model.worker import NoSuchWorker
from forge_schema.read import job_pages
from forge_schema.read.audit import Audit
from forge_schema.read.fleet import Fleet
from forge_schema.read.jobs import JobStory
from forge_schema.read.reports import Reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.queue.rig import Rig, Worker

REPORTED = ("attempt_history", "failed_attempts", "failures", "worker_utilisation")


def reaped(rig: Rig, worker: Worker) -> None:
    """Have a worker leave, and be reaped an hour later."""
    worker.renew()
    rig.registry.disconnect(worker.id, worker.machine.boot_id)
    rig.clock.advance(3601)
    assert rig.tick.reap() == 1


def deleted(rig: Rig, worker: Worker) -> None:
    """Have a worker leave, and be deleted by an admin."""
    worker.renew()
    rig.registry.disconnect(worker.id, worker.machine.boot_id)
    WorkerTokens(rig.database, actor="user:root").delete(worker.id)


WAYS = pytest.mark.parametrize("remove", [reaped, deleted])


def ran(rig: Rig, name: str = "spot-1") -> tuple[Worker, int]:
    """Have a worker of this name fail a job."""
    worker = rig.worker(name, kind=WorkerKind.EPHEMERAL)
    job_id = rig.submit(max_failures=0)
    rig.finish(worker.claim_one(), Reason.EXIT_CODE, exit_code=3)
    return worker, job_id


@WAYS
def test_attempts_keep_the_name_of_a_worker_that_was_removed(
    rig: Rig, remove: Callable[[Rig, Worker], None]
) -> None:
    worker, job_id = ran(rig)
    remove(rig, worker)
    assert rig.count("worker") == 0
    (run,) = JobStory(rig.database, job_id).runs()
    assert (run["worker_id"], run["worker"]) == (worker.id, "spot-1")
    (listed,) = job_pages.page(rig.database, parse("")).jobs
    assert (listed["worker_id"], listed["worker"]) == (worker.id, "spot-1")
    assert [row["worker"] for row in rig.jobs.attempts(job_id)] == ["spot-1"]
    assert "spot-1" in repr(explain(rig.database, job_id))
    for name in REPORTED:
        assert {row["worker"] for row in Reports(rig.database).rows(name)} == {"spot-1"}, name


@WAYS
def test_a_name_that_is_given_anew_parts_both_histories(
    rig: Rig, remove: Callable[[Rig, Worker], None]
) -> None:
    first, job_of_first = ran(rig)
    remove(rig, first)
    assert rig.registry.named("spot-1") == first.id
    second, job_of_second = ran(rig)
    assert second.id != first.id
    assert rig.registry.named("spot-1") == second.id
    remove(rig, second)
    assert rig.registry.named("spot-1") == second.id
    for worker, job_id in ((first, job_of_first), (second, job_of_second)):
        (run,) = JobStory(rig.database, job_id).runs()
        assert (run["worker_id"], run["worker"]) == (worker.id, "spot-1")
        assert Fleet(rig.database).former(worker.id) == {"id": worker.id, "name": "spot-1"}
        told = Audit(rig.database).events(worker_id=worker.id)
        assert {row["job_id"] for row in told if row["job_id"]} == {job_id}


def test_a_worker_that_never_came_is_found_by_its_name(rig: Rig) -> None:
    tokens = WorkerTokens(rig.database, actor="user:root")
    worker_id, _ = tokens.create("planned")
    tokens.delete(worker_id)
    assert rig.registry.named("planned") == worker_id
    with pytest.raises(NoSuchWorker, match="no worker has ever been called 'other'"):
        rig.registry.named("other")
