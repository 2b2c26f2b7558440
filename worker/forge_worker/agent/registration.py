"""Registration: reports the machine to the queue, and learns the worker's identity there."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from uuid import UUID, uuid4

import structlog
from forge_schema.model.spec import GANG_NETWORK, RUNS
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import Gpu, Machine

from forge_worker import worker_folder
from forge_worker.gang.address import GangPolicy, to_open
from forge_worker.machine.watched import WatchedMachine
from forge_worker.prepare.secrets import SecretStore
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.choice import Runners, handlers_label
from forge_worker.settings.settings import WorkerSettings

log = structlog.get_logger(__name__)


@dataclass
class WorkerIdentity:
    """The worker's identity: taken from the settings until the queue has assigned one."""

    name: str = ""
    worker_id: int = 0
    queue_id: UUID | None = None
    ephemeral: bool = False
    ttl_s: float = 0.0
    heartbeat_s: float = 0.0


class Registration:
    """Registers this boot of the worker, and keeps the shared `identity` up to date.

    The caller holds the lock of the worker's folder.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        gateway: Gateway,
        runners: Runners,
        machine: WatchedMachine,
        gangs: GangPolicy,
        *,
        secrets: SecretStore,
        inputs: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._inputs = inputs
        self._secrets = secrets
        self._announced: dict[str, str] = {}
        self._gateway = gateway
        self._runners = runners
        self._watched = machine
        self._gangs = gangs
        self._boot_id = uuid4()
        self._left_out_s = 0.0
        self.identity = WorkerIdentity(
            ephemeral=settings.ephemeral,
            ttl_s=settings.lease_ttl_s,
            heartbeat_s=settings.heartbeat_s,
        )

    def register(self) -> None:
        """Register, or register again.

        Raises:
            NameInUse: another live process is already this worker.
        """
        identity, first = self.identity, self.identity.worker_id == 0
        if self._gangs.publishes and self._runners.docker is not None:
            # It makes the bridge, whose address may be the one for gangs.
            self._runners.docker.obstacle()
        self._announced = self._secrets.labels()
        with self._watched.faults.left_out(self._machine(first=first)) as fit:
            registered = self._gateway.register(fit)
        identity.worker_id, identity.name = registered.worker_id, registered.name
        identity.queue_id = registered.queue_id
        identity.ephemeral = registered.kind is WorkerKind.EPHEMERAL
        identity.ttl_s = registered.lease_ttl_s
        identity.heartbeat_s = min(identity.heartbeat_s, registered.heartbeat_s)
        if first and self._settings.worker_name not in ("", identity.name):
            names = {"name": identity.name, "ignored": self._settings.worker_name}
            log.warning("name_ignored", note="over HTTP, an admin names the worker", **names)

    def outdated(self) -> bool:
        """Tell whether the operator has added or removed a secret since."""
        return self._secrets.labels() != self._announced

    def left_out(self, pause_s: float) -> None:
        """Log it when the queue begins to leave this worker out of gangs, for `pause_s` seconds."""
        if pause_s > self._left_out_s:
            address = self._gangs.address()
            log.warning(
                "gangs_paused",
                address=address,
                pause_s=round(pause_s),
                note=f"nobody can reach {address}; check --advertise-address, and that no firewall"
                f" here closes {to_open(publishes=self._gangs.publishes)} to the other machines",
            )
        self._left_out_s = max(pause_s, 0.0)

    def _machine(self, *, first: bool) -> Machine:
        settings = self._settings
        return Machine(
            boot_id=self._boot_id,
            cpus=settings.cpus,
            memory_mb=settings.memory_mb,
            disk_mb=settings.disk_mb,
            kind=WorkerKind.EPHEMERAL if settings.ephemeral else WorkerKind.PERSISTENT,
            accelerator=self._watched.devices.accelerator,
            gpus=[Gpu(**gpu.reported()) for gpu in self._watched.devices.gpus],
            labels={
                **settings.labels,
                **self._announced,
                **self._inputs,
                **self._labels(),
                **handlers_label(),
            },
            local=settings.local,
            price_per_hour=settings.price_per_hour,
            version=version("forge-queue"),
            address=self._gangs.address(),
            folder_id=worker_folder.own_id(settings.worker_dir),
            # A worker that was replaced must not replace its successor when it registers again.
            replace=first and settings.replace,
            speed=self._watched.speed,
        )

    def _labels(self) -> dict[str, str]:
        runs = {RUNS: self._runners.words}
        return {**runs, GANG_NETWORK: self._gangs.network} if self._gangs.publishes else runs
