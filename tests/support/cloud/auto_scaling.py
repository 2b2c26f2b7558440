"""An Auto Scaling group in a simulated AWS, and the script that scales it with the queue."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
from support.cloud.cloudformation import INFRA

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
    """A group of at most LARGEST machines that serves a rig's queue."""

    def __init__(self, endpoint: str, rig: Rig) -> None:
        self._endpoint = endpoint
        self._rig = rig
        self.name = f"group-{os.urandom(4).hex()}"
        self._client = self._connect("autoscaling")
        self._make()

    def _connect(self, service: str) -> Any:  # noqa: ANN401  boto3's own
        session = boto3.session.Session("test", "test", region_name="eu-west-1")
        return session.client(service, endpoint_url=self._endpoint)  # type: ignore[call-overload]  # any service

    def _make(self) -> None:
        ec2 = self._connect("ec2")
        image = ec2.describe_images()["Images"][0]["ImageId"]
        machine = {"ImageId": image, "InstanceType": "t3.large"}
        ec2.create_launch_template(LaunchTemplateName=self.name, LaunchTemplateData=machine)
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

    def look(self, *, jobs_each: int = 1) -> str:
        """Run the script once, and return its output."""
        script = [sys.executable, str(SCRIPT), "--group", self.name]
        ended = subprocess.run(
            [*script, "--jobs-each", str(jobs_each)],
            env={
                **os.environ,
                **AWS,
                "AWS_ENDPOINT_URL": self._endpoint,
                "FORGE_DATABASE_URL": self._rig.url,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert "failed" not in ended.stderr, ended.stderr
        return ended.stderr

    def workers(self) -> list[Worker]:
        """Start a worker on every machine, named as enrolment names them."""
        return [self._rig.worker(machine) for machine in sorted(self.machines())]
