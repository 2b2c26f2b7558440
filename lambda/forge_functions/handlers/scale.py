"""Fit an Auto Scaling group to the queue: a scheduled function, and infra/autoscaling/asg.py.

Machines are added by the desired capacity. They are not removed by it, since the group would not
know which are busy: surplus idle ones are drained, and ended by name at a later look.
"""

import math
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import boto3
from forge_schema.access.worker_tokens import NotOffline, WorkerTokens
from forge_schema.database.pool import Database, Row
from forge_schema.model.errors import ForgeError
from forge_schema.model.states import Command
from forge_schema.queue.registry import Registry
from pydantic import Field, PositiveFloat, PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict

# The operator decides which shapes a pool serves.
DEMAND = """
    SELECT coalesce(sum(demand), 0)::integer AS jobs
    FROM queue_demand WHERE accelerator = ANY(%s)
"""
ACTOR = "autoscaler"
# After so long, a machine will not return, even from a network partition.
FORGET_AFTER_S = 86_400
# boto3 creates its clients at run time, so they have no static type.
Client = Any


class ScaleSettings(BaseSettings):
    """FORGE_SCALE_* variables."""

    model_config = SettingsConfigDict(env_prefix="FORGE_SCALE_")

    group: str = Field(description="the group's name")
    jobs_each: PositiveInt = Field(1, description="jobs at once on a machine")
    accelerators: str = Field("any,cuda", description="whose demand it serves")
    enrol_within_s: PositiveFloat = Field(
        1_800.0, description="seconds after which a machine is ended that has not enrolled"
    )


class NoSuchGroup(ForgeError):
    """AWS knows no group of this name."""

    code = "group_not_found"


@dataclass(frozen=True)
class AwsClients:
    """AWS's clients for groups and for machines."""

    scaling: Client
    machines: Client


@dataclass(frozen=True)
class ScalingGroup:
    """A group as AWS describes it: the ids of its machines, and its size."""

    name: str
    machines: frozenset[str]
    desired: int
    largest: int


@cache
def opened() -> tuple[Database, AwsClients]:
    """Return the database and the clients, which stay open between invocations.

    Raises:
        DatabaseUnreachable: the database does not answer; the next invocation tries again.
    """
    session = boto3.session.Session()
    database = Database(os.environ["FORGE_DATABASE_URL"], size=1, prepare=False).open()
    return database, AwsClients(session.client("autoscaling"), session.client("ec2"))


def handler(_event: object, _context: object) -> None:
    """Look once."""
    look(*opened(), ScaleSettings.model_validate({}))


def look(database: Database, cloud: AwsClients, settings: ScaleSettings) -> None:
    """Fit the group to what is wanted now.

    Raises:
        NoSuchGroup: there is none of this name.
        DatabaseUnreachable: the database does not answer.
    """
    jobs = demand(database, settings.accelerators)
    fit(database, cloud, settings, math.ceil(jobs / settings.jobs_each))


def demand(database: Database, accelerators: str) -> int:
    """Return how many jobs run or could run now."""
    with database.reporting() as connection:
        row = connection.execute(DEMAND, (accelerators.split(","),)).fetchone()
    assert row is not None  # noqa: S101 - a sum has a row
    jobs: int = row["jobs"]
    return jobs


def fit(database: Database, cloud: AwsClients, settings: ScaleSettings, wanted: int) -> None:
    """Take the steps of one look; whatever is cut short, the next look does."""
    client, name = cloud.scaling, settings.group
    group = described(client, name)
    # Enrolment names a worker after its machine.
    machines = [row for row in Registry(database, actor=ACTOR).workers() if row["name"][:2] == "i-"]
    mine = [row for row in machines if row["name"] in group.machines]
    forget(database, [row for row in machines if row["name"] not in group.machines])
    left = group.desired - end_drained(client, mine)
    strangers = group.machines - {row["name"] for row in mine}
    left -= end_strangers(cloud, strangers, settings.enrol_within_s)
    wanted = min(wanted, group.largest)
    if wanted > left:
        say(f"machines: {left}, wanted: {wanted}")
        client.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=wanted)
    else:
        drain_idle(database, mine, left - wanted)


def described(client: Client, name: str) -> ScalingGroup:
    """Return the group, without machines that are on their way out."""
    groups = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    if not groups["AutoScalingGroups"]:
        raise NoSuchGroup(f"there is no Auto Scaling group {name}")
    (group,) = groups["AutoScalingGroups"]
    here = {i["InstanceId"] for i in group["Instances"] if not leaving(i["LifecycleState"])}
    return ScalingGroup(name, frozenset(here), group["DesiredCapacity"], group["MaxSize"])


def leaving(state: str) -> bool:
    """Tell whether a machine in this state of its life is on its way out."""
    return state.startswith(("Terminat", "Detach"))


def end_drained(client: Client, mine: list[Row]) -> int:
    """End machines that hold nothing and take nothing more, and return how many."""
    drained = [row for row in mine if row["status"] == "draining" and row["leases"] == 0]
    for row in drained:
        say(f"ending {row['name']}, which is drained")
        end(client, row["name"])
    return len(drained)


def end_strangers(cloud: AwsClients, unknown: frozenset[str], within_s: float) -> int:
    """End machines that have been there for long and never enrolled, and return how many.

    Nothing else would notice them, and each costs as much as a busy one.
    """
    if not unknown:
        return 0
    pages = cloud.machines.get_paginator("describe_instances").paginate(InstanceIds=[*unknown])
    instances = [
        instance
        for page in pages
        for group in page["Reservations"]
        for instance in group["Instances"]
    ]
    ages = {
        instance["InstanceId"]: datetime.now(UTC) - instance["LaunchTime"] for instance in instances
    }
    late = [name for name, age in ages.items() if age.total_seconds() > within_s]
    for name in late:
        say(f"ending {name}, which never enrolled: `aws ec2 get-console-output`")
        end(cloud.scaling, name)
    return len(late)


def end(client: Client, name: str) -> None:
    """End one machine, and want one less."""
    client.terminate_instance_in_auto_scaling_group(
        InstanceId=name, ShouldDecrementDesiredCapacity=True
    )


def drain_idle(database: Database, mine: list[Row], surplus: int) -> None:
    """Have as many machines as are too many take nothing more, idle ones only."""
    surplus -= sum(row["command"] is not None for row in mine)
    idle = [row for row in mine if row["command"] is None and row["leases"] == 0]
    registry = Registry(database, actor=ACTOR)
    for row in idle[: max(0, surplus)]:
        say(f"draining {row['name']}, which is idle")
        registry.command(row["id"], Command.DRAIN)


def forget(database: Database, gone: list[Row]) -> None:
    """Remove the workers of machines that are long gone."""
    tokens = WorkerTokens(database, actor=ACTOR)
    for row in gone:
        if row["status"] == "offline" and row["silent_s"] > FORGET_AFTER_S:
            try:
                tokens.delete(row["id"])
            except NotOffline:
                continue


def say(what: str) -> None:
    sys.stderr.write(f"scale: {what}\n")
