"""Registration: reports the machine to the queue, and learns the worker's identity there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from random import uniform
from threading import Event
from typing import TypeVar
from uuid import UUID, uuid4

import structlog
from forge_schema.database.pool import AccessRefused, DatabaseUnreachable, NotMigrated
from forge_schema.model.errors import ForgeError
from forge_schema.model.spec import GANG_NETWORK, RUNS
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import Gpu, Machine
from forge_schema.queue.registry import NameInUse

from forge_worker import worker_folder
from forge_worker.circuit_breaker import QueueRefused
from forge_worker.clock import seconds
from forge_worker.gang.address import GangPolicy, to_open
from forge_worker.job_runs import leftovers
from forge_worker.machine.watched import WatchedMachine
from forge_worker.prepare.secrets import SecretStore
from forge_worker.queue.gateway import Gateway
from forge_worker.runners.choice import Runners, handlers_label
from forge_worker.runners.docker.runner import DockerRunner, engine_answers
from forge_worker.settings.settings import WorkerSettings
from forge_worker.spot.watch import SpotMarket

T = TypeVar("T")

FIRST_PAUSE_S = 0.5

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
        market: SpotMarket,
        inputs: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._inputs = inputs
        self._secrets = secrets
        self._market = market
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
        self._announced = self._changing()
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
        """Tell whether a secret was added or removed since, or the cloud has said what this is."""
        return self._changing() != self._announced

    def _changing(self) -> dict[str, str]:
        return {**self._secrets.labels(), **self._market.labels()}

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
                **handlers_label(self._runners.installed),
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


class NotWaited(Exception):
    """The worker was told to leave before the queue answered."""


def until_answered(
    step: Callable[[], T],
    *,
    limit_s: float,
    name_limit_s: float = 0.0,
    leaving: Event | None = None,
    unanswered: Callable[[], None] = lambda: None,
) -> T:
    """Retry a step until the queue answers; pauses double up to `limit_s` seconds, with jitter.

    `unanswered` is called before each pause. If the name is in use, retries continue for
    `name_limit_s` seconds: its holder may be dead without the queue knowing yet.

    Raises:
        QueueRefused: the server refuses the token, or its certificate is not trusted.
        AccessRefused: the database refuses the role.
        NotMigrated: the database lacks tables.
        NameInUse: another live worker has this name.
        NotWaited: `leaving` was set.
    """
    name_until_s = seconds() + name_limit_s
    leaving = leaving or Event()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return step()
        except (QueueRefused, AccessRefused, NotMigrated):
            raise
        except (DatabaseUnreachable, NameInUse) as error:
            if isinstance(error, NameInUse) and seconds() >= name_until_s:
                raise
            wait_s = pause_s * uniform(0.5, 1.0)  # noqa: S311 - no secret
            log.warning("queue_unreachable", why=error.message, again_in_s=round(wait_s, 1))
        unanswered()
        if leaving.wait(wait_s):
            raise NotWaited
        pause_s = min(pause_s * 2, limit_s)


def end_leftovers(settings: WorkerSettings) -> None:
    """Stop the containers that an earlier agent left, if the policy is strict.

    It is unknown how long their leases still hold. Processes end before theirs can.
    """
    if settings.lease_policy != "strict" or not settings.uses_engine or not engine_answers():
        return
    try:
        leftovers.reap(leftovers.survivors(settings.worker_dir, [DockerRunner()]).values())
    except ForgeError as error:
        log.warning("containers_outlive_leases", error=error.message)


def pause(settings: WorkerSettings, pause_s: float) -> None:
    """Pause before a start, without leaving containers running unattended."""
    end_leftovers(settings)
    Event().wait(pause_s)
