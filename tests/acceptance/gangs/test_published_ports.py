"""Containers of a gang talk to each other on published ports, which are open while they run."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from forge_worker.gang.address import address_of
from forge_worker.runners.docker.network import BRIDGE
from support.gangs.programs import GREET
from support.waiting import eventually
from support.workers.worker import bed

if TYPE_CHECKING:
    from pathlib import Path

    from support.workers.worker import Bed


def bridge() -> str:
    """Return the address that workers of this machine and their containers reach."""
    found = address_of(BRIDGE)
    assert found is not None
    return found


def greeted(made: Bed, nodes: int) -> dict[int, int]:
    """Have the members greet each other; return their ports by rank."""
    job = made.script(GREET, nodes=nodes)
    made.succeeds(job)
    said = re.findall(r"rank (\d) at (\d+) heard (.*)", made.log(job).decode())
    assert [heard for _, _, heard in said] == [str([*range(nodes)])] * nodes
    return {int(rank): int(port) for rank, port, _ in said}


def closed(port: int) -> bool:
    """Tell whether nothing listens at a port of the engine's bridge."""
    try:
        with socket.create_connection((bridge(), port)):
            return False
    except ConnectionRefusedError:
        return True


def test_members_reach_each_other_and_themselves_on_published_ports(
    tmp_path: Path, database_url: str
) -> None:
    with bed("docker", tmp_path, database_url) as made:
        for rank in range(2):
            made.worker(f"m{rank}", gang_network="ports")
        ports = greeted(made, 2)
        assert len({*ports.values()}) == 2
        # The containers go a moment after their job.
        eventually(lambda: all(closed(port) for port in ports.values()))


def test_a_member_with_the_machines_network_joins_them(tmp_path: Path, database_url: str) -> None:
    with bed("docker", tmp_path, database_url) as made:
        made.worker("ports", gang_network="ports")
        made.worker("host", gang_network="host", advertise_address=bridge())
        assert len(greeted(made, 2)) == 2
