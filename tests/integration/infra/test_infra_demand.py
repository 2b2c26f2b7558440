"""Machines by demand: an Auto Scaling group that infra/autoscaling scales, and the whole stack."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from forge_schema.model.states import Command, WorkerStatus
from support.cloud.auto_scaling import LARGEST, Cloud

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker


@pytest.fixture
def cloud(moto: str, rig: Rig) -> Cloud:
    return Cloud(moto, rig)


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


def test_a_stack_comes_up_and_its_pool_goes_from_no_machine_to_one_and_back(
    moto: str, rig: Rig
) -> None:
    """As far as moto goes: `support.cloud.stack` names what it lacks."""
    from support.cloud.stack import deployed  # noqa: PLC0415  it loads much of moto

    with deployed(moto) as stack:
        outputs = stack.outputs()
        told = stack.function("Scale")["Environment"]
        (made,) = stack.find("rds", "describe_db_instances")["DBInstances"]
        database = urlsplit(told["FORGE_DATABASE_URL"])
        assert database.hostname == made["Endpoint"]["Address"]
        assert (database.username, database.password) == (made["MasterUsername"], "p4ss")
        assert database.query == "sslmode=verify-full"
        bucket = urlsplit(told["FORGE_STORE_URL"]).netloc
        assert stack.find("s3", "head_bucket", Bucket=bucket)
        assert outputs["StoreUrl"] == told["FORGE_STORE_URL"]
        assert told["FORGE_SCALE_GROUP"] == outputs["WorkerGroupName"]
        network = stack.function("Setup")["VpcConfig"]
        assert set(network["SubnetIds"]) == {
            one["SubnetIdentifier"] for one in made["DBSubnetGroup"]["Subnets"]
        }

        pool = Cloud(moto, rig, told["FORGE_SCALE_GROUP"])
        assert pool.machines() == []
        job = rig.submit()
        pool.look()
        (machine,) = pool.machines()
        text = stack.find(
            "ec2", "describe_instance_attribute", InstanceId=machine, Attribute="userData"
        )["UserData"]["Value"]
        assert f"FORGE_URL={outputs['Url']}\n" in base64.b64decode(text).decode()
        (worker,) = pool.workers()
        grant = worker.claim_one()
        assert grant.job_id == job
        rig.finish(grant)
        assert "draining" in pool.look()
        hear(worker)
        pool.look()
        assert pool.machines() == []
