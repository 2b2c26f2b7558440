"""What a member runs: on the machine's network, or in a container that publishes one port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from forge_worker.gang.launchers import EVERYWHERE, launched
from forge_worker.gang.members import Gang
from forge_worker.runners.docker.hardening import DockerPolicy, settings
from forge_worker.runners.process.runner import ProcessRunner
from support.gangs.peers import gang
from support.workers.runners import make_spec

if TYPE_CHECKING:
    from pathlib import Path

    from forge_worker.runners.runner import RunSpec

PORTS: dict[str, Any] = {"publishes": True, "program_port": 29507}


def member(root: Path, of: Gang, launcher: str = "none") -> RunSpec:
    return launched(of, make_spec(root, ("./program",)), ProcessRunner(), launcher)


@pytest.mark.parametrize(
    ("address", "published"), [("127.0.0.1", "127.0.0.1"), ("203.0.113.7", EVERYWHERE)]
)
def test_a_container_publishes_its_port_at_the_address_of_the_machine(
    tmp_path: Path, address: str, published: str
) -> None:
    spec = member(tmp_path, gang(1, address=address, **PORTS))
    asked = settings(
        spec,
        DockerPolicy(network="none"),
        user="1:1",
        pipe=spec.log_path,
        image={},
        host_cpus=1,
    )
    assert (asked["network"], asked["ports"]) == ("forge", {"29507/tcp": (published, 29507)})


def test_with_the_machines_network_nothing_is_published(tmp_path: Path) -> None:
    spec = member(tmp_path, gang(1, program_port=29507), "torchrun")
    assert (spec.host_network, spec.publishes) == (True, None)


def test_on_one_machine_its_processes_meet_on_the_loopback_address(tmp_path: Path) -> None:
    one = gang(nodes=1, address="127.0.0.1", gpus=2, vendor="nvidia")
    spec = member(tmp_path, one, "torchrun")
    # Its container keeps the network of its own.
    assert (spec.host_network, spec.publishes) == (False, None)
    assert "--nproc-per-node=2" in spec.command
    assert "--master-addr=127.0.0.1" in spec.command
    assert (spec.env["NNODES"], spec.env["WORLD_SIZE"]) == ("1", "2")
