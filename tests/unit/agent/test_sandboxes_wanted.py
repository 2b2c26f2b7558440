"""How many sandboxes a worker keeps ready."""

from typing import Any, cast

from forge_schema.model.worker import Capacity
from forge_worker.agent.agent import sandboxes_wanted
from forge_worker.agent.claim_loop import Claims
from forge_worker.agent.registration import WorkerIdentity
from forge_worker.machine.slots import Slots
from forge_worker.runners.choice import Runners
from forge_worker.runners.docker.runner import DockerRunner
from forge_worker.runners.process.runner import ProcessRunner

UNUSED = cast("Any", None)


def test_as_many_as_jobs_may_come_and_none_once_none_can() -> None:
    slots = Slots(Capacity(cpus=2.5, memory_mb=1024, disk_mb=1024), max_jobs=9)
    claims = Claims(UNUSED, slots, WorkerIdentity())
    runners = Runners(DockerRunner(), None, "")
    assert sandboxes_wanted(1, runners, claims, slots) == 1
    assert sandboxes_wanted(9, runners, claims, slots) == 2
    # The next job starts when one ends.
    slots.lend(1, Capacity(cpus=2, memory_mb=1, disk_mb=1))
    assert sandboxes_wanted(9, runners, claims, slots) == 1
    assert sandboxes_wanted(0, runners, claims, slots) == 0
    claims.shut()
    assert sandboxes_wanted(9, runners, claims, slots) == 0


def test_none_before_the_first_job_in_a_container_where_jobs_are_processes() -> None:
    slots = Slots(Capacity(cpus=2, memory_mb=1024, disk_mb=1024), max_jobs=9)
    claims, docker = Claims(UNUSED, slots, WorkerIdentity()), DockerRunner()
    runners = Runners(docker, ProcessRunner(), "")
    assert sandboxes_wanted(2, runners, claims, slots) == 0
    assert docker.sandboxes.take("forge-1") is None
    assert sandboxes_wanted(2, runners, claims, slots) == 2
