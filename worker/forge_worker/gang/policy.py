"""What the operator allows this worker in gangs."""

from dataclasses import dataclass
from pathlib import Path

from forge_worker.gang.address import towards
from forge_worker.settings.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """How this worker takes part in gangs, if it is `allowed` at all.

    `advertised` is the operator's address for the other members; by default it is the one by which
    this machine reaches the queue at `queue_url`. A member waits `patience_s` for the others. Ports
    are locked in `lock_dir`.
    """

    allowed: bool
    advertised: str | None = None
    queue_url: str = ""
    patience_s: float = 600.0
    lock_dir: Path | None = None

    def address(self) -> str | None:
        """Return where other members reach this machine now; None if it takes no part."""
        if not self.allowed:
            return None
        return self.advertised or towards(self.queue_url)


def gang_policy(settings: WorkerSettings, *, containers: bool) -> GangPolicy:
    """Return what the settings allow.

    Plain processes have the machine's network anyway. Where there are `containers`, the operator
    must allow that those of a gang have it too.
    """
    network = settings.gang_network or ("none" if containers else "host")
    advertised = settings.advertise_address
    return GangPolicy(
        allowed=network == "host",
        advertised=None if advertised is None else str(advertised),
        queue_url=settings.url[0] if settings.url else settings.database_url,
        patience_s=settings.gang_patience_s,
        lock_dir=settings.lock_dir,
    )
