"""An Auto Scaling group in a simulated AWS, and the script that scales it with the queue."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from support.cloud.cloudformation import INFRA
from support.warm.process import Warm

if TYPE_CHECKING:
    from support.queue.rig import Rig, Worker

SCRIPT = INFRA / "autoscaling" / "asg.py"
AWS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
LARGEST = 3


class Cloud:
    """A group that serves a rig's queue: the named one, or one of at most LARGEST machines."""

    def __init__(self, endpoint: str, rig: Rig, name: str = "") -> None:
        self._endpoint = endpoint
        self._rig = rig
        self.name = name or f"group-{os.urandom(4).hex()}"
        self._client = _client("autoscaling", endpoint)
        if not name:
            self._make()

    def _make(self) -> None:
        machine = {"ImageId": _image(self._endpoint), "InstanceType": "t3.large"}
        _client("ec2", self._endpoint).create_launch_template(
            LaunchTemplateName=self.name, LaunchTemplateData=machine
        )
        self._client.create_auto_scaling_group(
            AutoScalingGroupName=self.name,
            LaunchTemplate={"LaunchTemplateName": self.name, "Version": "$Latest"},
            MinSize=0,
            MaxSize=LARGEST,
            DesiredCapacity=0,
            AvailabilityZones=["eu-west-1a"],
        )

    def machines(self) -> list[str]:
        """Return the ids of the group's machines."""
        groups = self._client.describe_auto_scaling_groups(AutoScalingGroupNames=[self.name])
        (group,) = groups["AutoScalingGroups"]
        assert group["DesiredCapacity"] == len(group["Instances"])
        return [machine["InstanceId"] for machine in group["Instances"]]

    def look(self, *options: str, jobs_each: int = 1) -> str:
        """Run the script once, and return its output."""
        with Warm(
            SCRIPT.stem,
            [str(SCRIPT), "--group", self.name, "--jobs-each", str(jobs_each), *options],
            env={
                **os.environ,
                **AWS,
                "PYTHONPATH": str(SCRIPT.parent),
                "AWS_ENDPOINT_URL": self._endpoint,
                "FORGE_DATABASE_URL": self._rig.url,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as script:
            _, told = script.communicate(timeout=60)
        assert script.returncode == 0, told
        assert "failed" not in told, told
        return str(told)

    def workers(self) -> list[Worker]:
        """Start a worker on every machine, named as enrolment names them."""
        return [self._rig.worker(machine) for machine in sorted(self.machines())]


@cache
def _client(service: str, endpoint: str) -> Any:  # noqa: ANN401  boto3's own
    # Each would read megabytes of JSON about its service.
    session = boto3.session.Session("test", "test", region_name="eu-west-1")
    return session.client(service, endpoint_url=endpoint)  # type: ignore[call-overload]  # any service


@cache
def _image(endpoint: str) -> str:
    image: str = _client("ec2", endpoint).describe_images()["Images"][0]["ImageId"]
    return image
