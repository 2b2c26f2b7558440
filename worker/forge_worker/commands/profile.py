"""`forge-worker --profile-machine`: measure this machine's speed, and keep the result."""

from forge_schema.model.quantities import counted, flops_text
from forge_schema.model.worker import DEVICES, Speed

from forge_worker.devices.inventory import Inventory
from forge_worker.machine.speed import measured
from forge_worker.settings.settings import WorkerSettings

METHODS = {"torch": "PyTorch", "numpy": "NumPy", "python": "Python alone"}


def profile(settings: WorkerSettings) -> Speed:
    """Measure the machine anew. The caller holds the lock of the worker's folder.

    Raises:
        GpuMissing: the settings name a GPU that does not exist.
        NotMeasured: the program that measures failed, or took too long.
        OSError: the disk is full or faulty.
    """
    return measured(settings, Inventory(settings.gpus))


def words(speed: Speed) -> str:
    """Return the lines to print."""
    told = [f"matrix multiplication, with {METHODS.get(speed.method, speed.method)}:"]
    for device in DEVICES:
        name = counted(speed.cpus, "CPU") if device == "cpu" else f"one GPU ({device})"
        rates = getattr(speed, device).items()
        told += [f"  {name}, {kind}: {flops_text(rate)}" for kind, rate in rates]
    if speed.memory_gb_s is not None:
        told.append(f"memory, copied by one CPU: {speed.memory_gb_s:g} GB/s")
    if speed.disk_mb_s is not None:
        told.append(f"disk of the worker's folder, written: {speed.disk_mb_s:g} MB/s")
    return "\n".join(told)
