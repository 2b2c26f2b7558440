"""Measure this machine's speed, in seconds, and print it as JSON: `measure.py FOLDER ACCELERATOR`.

A program of its own, run by any Python that may have PyTorch or NumPy, so it imports nothing of
ours. It needs its own process: what it takes of a GPU is free again when it has ended.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import mul
from statistics import median
from time import perf_counter
from typing import Any

# A processor reaches its lasting clock in the first, and gets the median of what follows.
WARM_S, MEASURE_S = 0.3, 0.7
# Shorter ones are repeated, since the clock and the start of a multiplication count too much.
SAMPLE_S = 0.02
CPU_SIZE, GPU_SIZE, PYTHON_SIZE = 2048, 4096, 64
COPY_BYTES = 128 << 20
CHUNK, MOST_WRITTEN, MOST_OF_FREE = 4 << 20, 512 << 20, 10
WRITE_S = 0.5

# Multiplies matrices a number of times, and returns when that is done.
Multiply = Callable[[int], None]


def main(folder: str, accelerator: str) -> None:
    """Print the fields of `forge_schema.model.worker.Speed`."""
    figures = {**processors(accelerator), "memory_gb_s": memory(), "disk_mb_s": disk(folder)}
    sys.stdout.write(json.dumps({**figures, "version": 1}))


def processors(accelerator: str) -> dict[str, Any]:
    """Return the speed of the CPUs, and of the accelerator if PyTorch can use it."""
    with suppress(ImportError):
        return by_torch(accelerator)
    with suppress(ImportError):
        return by_numpy()
    return by_python()


def by_torch(accelerator: str) -> dict[str, Any]:
    """Measure with PyTorch; `ImportError` if it is not installed."""
    import torch  # type: ignore[import-not-found]  # noqa: PLC0415  may be missing

    cpu = {"fp32": of_torch(torch, "cpu", torch.float32, CPU_SIZE)}
    figures = {"method": "torch", "cpus": cpus(), "cpu": cpu}
    if devices := list(gpus(torch, accelerator)):
        figures[accelerator] = of_gpus(torch, devices)
    return figures


def gpus(torch: Any, accelerator: str) -> Iterator[str]:  # noqa: ANN401  a module
    """Yield a GPU of each kind."""
    if accelerator == "mps" and torch.backends.mps.is_available():
        yield "mps"
    if accelerator in ("cuda", "rocm") and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        yield from (f"cuda:{names.index(name)}" for name in sorted(set(names)))


def of_gpus(torch: Any, devices: list[str]) -> dict[str, float]:  # noqa: ANN401  a module
    """Return the GFLOPS of the slowest GPU, in fp32, and in bf16 unless one of them lacks that."""
    rates = {"fp32": min(of_torch(torch, device, torch.float32, GPU_SIZE) for device in devices)}
    # It has computed in fp32: what PyTorch raises now means that it lacks this type.
    with suppress(RuntimeError, TypeError):
        speeds = [of_torch(torch, device, torch.bfloat16, GPU_SIZE) for device in devices]
        rates["bf16"] = min(speeds)
    return rates


def of_torch(torch: Any, device: str, kind: Any, size: int) -> float:  # noqa: ANN401  PyTorch's
    """Return the GFLOPS of one device."""
    left, right = (torch.rand(size, size).to(device, kind) for _ in range(2))
    made = torch.empty(size, size, device=device, dtype=kind)
    wait = getattr(getattr(torch, device.partition(":")[0]), "synchronize", lambda *_: None)

    def multiply(rounds: int) -> None:
        for _ in range(rounds):
            torch.mm(left, right, out=made)
        # A GPU's number; neither CPUs nor Apple's GPU have one.
        wait(*([device] if ":" in device else []))

    return gflops(multiply, size)


def by_numpy() -> dict[str, Any]:
    """Measure the CPUs with NumPy; `ImportError` if it is not installed."""
    import numpy as np  # noqa: PLC0415  may be missing

    source = np.random.default_rng(1)
    left, right = (source.random((CPU_SIZE, CPU_SIZE), dtype=np.float32) for _ in range(2))
    made = np.empty_like(left)

    def multiply(rounds: int) -> None:
        for _ in range(rounds):
            np.matmul(left, right, out=made)

    return {"method": "numpy", "cpus": cpus(), "cpu": {"fp32": gflops(multiply, CPU_SIZE)}}


def by_python() -> dict[str, Any]:
    """Measure one CPU with Python alone, which is far from what it can do."""
    row = [1.0 + n / PYTHON_SIZE for n in range(PYTHON_SIZE)]

    def multiply(rounds: int) -> None:
        for _ in range(rounds * PYTHON_SIZE * PYTHON_SIZE):
            sum(map(mul, row, row))

    return {"method": "python", "cpus": 1, "cpu": {"fp64": gflops(multiply, PYTHON_SIZE)}}


def cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gflops(multiply: Multiply, size: int) -> float:
    """Return the median rate of multiplying two square matrices, in 10⁹ operations per second."""
    began, rounds = perf_counter(), 1
    while (taken := _seconds(multiply, rounds)) < SAMPLE_S:
        rounds *= 2
    while perf_counter() - began < WARM_S:
        _seconds(multiply, rounds)
    samples, until = [taken], perf_counter() + MEASURE_S
    # The first one counts only where a second one would take too long.
    while perf_counter() + taken < until:
        samples.append(_seconds(multiply, rounds))
    return rounded(2 * size**3 * rounds / median(samples[1:] or samples) / 1e9)


def _seconds(act: Callable[[int], None], rounds: int) -> float:
    began = perf_counter()
    act(rounds)
    return perf_counter() - began


def memory() -> float:
    """Return how many GB per second one CPU copies; the copy is larger than most caches."""
    # Both are written to first: memory never touched has no place yet.
    source, target = bytearray(b"\1") * COPY_BYTES, bytearray(b"\2") * COPY_BYTES

    def copy(_rounds: int) -> None:
        target[:] = source

    times = [_seconds(copy, 1) for _ in range(5)]
    return rounded(COPY_BYTES / median(times) / 1e9)


def disk(folder: str) -> float | None:
    """Return how many MB per second reach the disk of a folder; None if it is full."""
    chunk, most = os.urandom(CHUNK), MOST_WRITTEN
    with suppress(OSError, AttributeError):
        there = os.statvfs(folder)
        most = min(most, there.f_bavail * there.f_frsize // MOST_OF_FREE)
    written, began = 0, perf_counter()
    with suppress(OSError), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        while written + CHUNK <= most and (not written or perf_counter() - began < WRITE_S):
            written += file.write(chunk)
        os.fsync(file.fileno())
        return rounded(written / (perf_counter() - began) / 1e6) if written else None
    return None


def rounded(number: float) -> float:
    """Return a number with the digits that such a short measurement has."""
    return float(f"{number:.3g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
