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
