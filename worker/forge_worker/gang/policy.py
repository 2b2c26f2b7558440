"""What the operator allows this worker in gangs."""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from forge_worker.gang.address import address_of, is_for_containers, towards
from forge_worker.runners.docker.network import BRIDGE
from forge_worker.settings.settings import WorkerSettings

Network = Literal["host", "ports", "none"]


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """How this worker takes part in gangs.

    The members have the machine's own `network`, or only publish single ports, or there are none.
    `advertised` is the operator's address for the other members; by default it is the one by which
    this machine reaches the queue at `queue_url`. A member waits `patience_s` for the others. Ports
    are locked in `lock_dir`.
    """

    network: Network
    advertised: str | None = None
    queue_url: str = ""
    patience_s: float = 600.0
    lock_dir: Path | None = None

    def address(self) -> str | None:
        """Return where other members reach this machine now; None if it takes no part."""
        if self.network == "none":
            return None
        found = self.advertised or towards(self.queue_url)
        if not self.publishes or found is None or is_for_containers(found):
            return found
        # The queue and all its workers are on this machine.
        return address_of(BRIDGE) if ip_address(found).is_loopback else None

    @property
    def publishes(self) -> bool:
        """Whether a member's container is on the bridge, and publishes its port."""
        return self.network == "ports"


def gang_policy(settings: WorkerSettings, *, containers: bool) -> GangPolicy:
    """Return what the settings allow.

    Plain processes have the machine's network anyway. Where there are `containers`, the operator
    must allow that those of a gang have it too, or publish ports.
    """
    advertised = settings.advertise_address
    return GangPolicy(
        network=settings.gang_network or ("none" if containers else "host"),
        advertised=None if advertised is None else str(advertised),
        queue_url=settings.url[0] if settings.url else settings.database_url,
        patience_s=settings.gang_patience_s,
        lock_dir=settings.lock_dir,
    )
