"""The machine's speed: measured once per hardware, and kept in the worker's folder."""

import json
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import psutil
import structlog
from forge_schema.model.errors import ForgeError
from forge_schema.model.quantities import counted, duration_text, flops_text
from forge_schema.model.worker import DEVICES, Speed
from pydantic import TypeAdapter, ValidationError

from forge_worker.devices.inventory import Inventory
from forge_worker.files.small_files import write_atomically
from forge_worker.machine import measure
from forge_worker.privacy import without_credentials
from forge_worker.runners.runner import visible
from forge_worker.settings.settings import WorkerSettings

FILE = "speed.json"
# It takes about five seconds, and longer where PyTorch is read from a slow disk.
PATIENCE_S = 120.0
CPU_NAME = "model name"
LAST_WORDS = 300
SPEED = TypeAdapter(Speed)

log = structlog.get_logger(__name__)

METHODS = {"torch": "PyTorch", "numpy": "NumPy", "python": "Python alone"}


class NotMeasured(ForgeError):
    """The program that measures the machine failed."""


def kept(folder: Path, devices: Inventory) -> Speed | None:
    """Return the speed measured earlier on this hardware, if there is one."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return (
            SPEED.validate_python(document["speed"])
            if document["on"] == hardware(devices)
            else None
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("speed_unreadable", error=str(error))
        return None


def at_start(settings: WorkerSettings) -> None:
    """Measure the machine if the settings say so and its speed is unknown. The lock is held.

    Jobs that an earlier agent left may still run: the result would be too low.
    """
    if not settings.measure or any((settings.worker_dir / "jobs").glob("*")):
        return
    devices = Inventory(settings.gpus)
    if kept(settings.worker_dir, devices) is None:
        try:
            log.info("machine_measured", **measured(settings, devices).reported())
        except (ForgeError, OSError) as error:
            log.warning("machine_not_measured", error=str(error))


def measured(settings: WorkerSettings, devices: Inventory) -> Speed:
    """Measure the machine, and keep the result in the worker's folder.

    Raises:
        NotMeasured: the program failed, or took too long.
        OSError: the disk is full or faulty.
    """
    figures = _run(settings, devices)
    try:
        speed = SPEED.validate_json(figures)
    except ValidationError as error:
        raise NotMeasured(f"the measurement printed {figures[:LAST_WORDS]!r}") from error
    text = json.dumps({"on": hardware(devices), "speed": speed.reported()})
    write_atomically(settings.worker_dir / FILE, text, durable=False)
    return speed


def hardware(devices: Inventory) -> str:
    """Return a hash of what the speed depends on: CPUs, GPUs and their driver."""
    gpus = sorted([gpu.uuid, gpu.name, gpu.driver] for gpu in devices.gpus)
    parts = [_cpu_name(), psutil.cpu_count(), devices.accelerator, gpus]
    return sha256(json.dumps(parts).encode()).hexdigest()


def _cpu_name() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line for line in lines if line.startswith(CPU_NAME)), "")
    return ""


def _run(settings: WorkerSettings, devices: Inventory) -> str:
    python = str(settings.measure_python or sys.executable)
    code = Path(measure.__file__).read_text(encoding="utf-8")
    try:
        # As text: Python would look for libraries beside a file first. Nothing of a job is in `/`.
        done = subprocess.run(  # noqa: S603  our own program, and no shell
            [python, "-c", code, str(settings.worker_dir.resolve()), devices.accelerator],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=without_credentials() | _visible(devices),
            cwd="/",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"did not end within {duration_text(PATIENCE_S)}"
        raise NotMeasured(
            f"the measurement with {python} "
            + (f"cannot be started: {error}" if isinstance(error, OSError) else why)
        ) from error
    if done.returncode:
        last = done.stderr.strip()[-LAST_WORDS:]
        raise NotMeasured(f"the measurement with {python} failed: {last}")
    return done.stdout


def _visible(devices: Inventory) -> dict[str, str]:
    vendor = devices.gpus[0].vendor if devices.gpus else ""
    return visible([gpu.uuid for gpu in devices.gpus], vendor)


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
    lines = [f"matrix multiplication, with {METHODS.get(speed.method, speed.method)}:"]
    for device in DEVICES:
        name = counted(speed.cpus, "CPU") if device == "cpu" else f"one GPU ({device})"
        rates = getattr(speed, device).items()
        lines += [f"  {name}, {kind}: {flops_text(rate)}" for kind, rate in rates]
    if speed.memory_gb_s is not None:
        lines.append(f"memory, copied by one CPU: {speed.memory_gb_s:g} GB/s")
    if speed.disk_mb_s is not None:
        lines.append(f"disk of the worker's folder, written: {speed.disk_mb_s:g} MB/s")
    return "\n".join(lines)
