"""Machines by demand: an Auto Scaling group that infra/autoscaling scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forge_schema.model.states import Command, WorkerStatus
from moto.server import ThreadedMotoServer
from support.cloud.auto_scaling import LARGEST, Cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.queue.rig import Rig, Worker


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def cloud(endpoint: str, rig: Rig) -> Cloud:
    return Cloud(endpoint, rig)


def hear(worker: Worker) -> None:
    """Let a worker renew, so that it hears what it is asked to do."""
    renewal = worker.rig.queue.renew(worker.id, worker.machine.boot_id, [], WorkerStatus.IDLE)
    assert renewal is not None


def test_an_empty_queue_wants_no_machine(cloud: Cloud) -> None:
    assert cloud.look() == ""
    assert cloud.machines() == []


def test_machines_come_with_demand_up_to_the_largest_size(cloud: Cloud, rig: Rig) -> None:
    rig.submit_many(5)
    cloud.look(jobs_each=4)
    assert len(cloud.machines()) == 2
    cloud.look()
    assert len(cloud.machines()) == LARGEST
    assert cloud.look() == "", "a second look changes nothing"


def test_idle_machines_go_and_a_busy_one_stays(cloud: Cloud, rig: Rig) -> None:
    rig.submit_many(3)
    cloud.look()
    busy, *others = cloud.workers()
    grant = busy.claim_one()
    for other in others:
        rig.finish(other.claim_one())
    said = cloud.look()
    assert said.count("draining") == 2
    assert len(cloud.machines()) == LARGEST, "none goes before it has heard"
    for worker in (busy, *others):
        hear(worker)
    assert cloud.look().count("ending") == 2
    assert cloud.machines() == [busy.name]
    rig.finish(grant)


def test_a_draining_machine_that_got_a_job_after_all_stays_until_it_is_done(
    cloud: Cloud, rig: Rig
) -> None:
    rig.submit()
    cloud.look()
    (worker,) = cloud.workers()
    grant = worker.claim_one()
    rig.registry.command(worker.id, Command.DRAIN)
    hear(worker)
    cloud.look()
    assert cloud.machines() == [worker.name]
    rig.finish(grant)
    cloud.look()
    assert cloud.machines() == []


def test_workers_of_other_kinds_are_left_alone(cloud: Cloud, rig: Rig) -> None:
    rig.worker("on-prem")
    rig.worker("i-00000000000000000")
    cloud.look()
    assert {row["name"]: row["command"] for row in rig.registry.workers()} == {
        "on-prem": None,
        "i-00000000000000000": None,
    }


def test_a_machine_that_is_long_gone_is_forgotten(cloud: Cloud, rig: Rig) -> None:
    rig.worker("i-00000000000000000")
    rig.clock.advance(3_600)
    rig.tick.mark_offline()
    cloud.look()
    assert rig.count("worker") == 1, "it may be cut off for an hour"
    rig.clock.advance(86_400)
    cloud.look()
    assert rig.count("worker") == 0


def test_a_machine_that_never_enrolled_is_ended(cloud: Cloud, rig: Rig) -> None:
    rig.submit_many(2)
    cloud.look()
    enrolled, stranger = sorted(cloud.machines())
    rig.worker(enrolled).claim_one()
    assert cloud.look() == "", "it has half an hour"
    said = cloud.look("--enrol-within", "0.001")
    assert f"ending {stranger}, which never enrolled" in said
    assert stranger not in cloud.machines()
    assert enrolled in cloud.machines()
