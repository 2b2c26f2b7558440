"""What this worker tells the queue about its machine."""

from importlib.metadata import version
from uuid import UUID

from forge_schema.model.spec import RUNS
from forge_schema.model.states import WorkerKind
from forge_schema.model.worker import Capacity, Gpu, Machine

from forge_worker import worker_folder
from forge_worker.devices import Inventory
from forge_worker.runners.choice import Runners
from forge_worker.runners.installed import handlers_label
from forge_worker.settings.settings import WorkerSettings


def machine(
    settings: WorkerSettings,
    boot_id: UUID,
    devices: Inventory,
    runners: Runners,
    *,
    replace: bool = False,
) -> Machine:
    """Return the registration of this boot of the worker; whoever calls holds its folder's lock."""
    return Machine(
        boot_id=boot_id,
        cpus=settings.cpus,
        memory_mb=settings.memory_mb,
        disk_mb=settings.disk_mb,
        kind=WorkerKind.EPHEMERAL if settings.ephemeral else WorkerKind.PERSISTENT,
        accelerator=devices.accelerator,
        gpus=[Gpu(**gpu.reported()) for gpu in devices.gpus],
        labels={**settings.labels, RUNS: runners.words, **handlers_label()},
        local=settings.local,
        price_per_hour=settings.price_per_hour,
        version=version("forge-queue"),
        folder_id=worker_folder.own_id(settings.worker_dir),
        replace=replace,
    )


def capacity(settings: WorkerSettings) -> Capacity:
    """Return all that this worker lends besides GPUs."""
    return Capacity(settings.cpus, settings.memory_mb, settings.disk_mb)
