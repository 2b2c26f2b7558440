"""Train on ranks of unequal speed, each with its share of every batch, so that steps end together.

Each rank runs this program with the usual RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. It trains
twice with the same batches, in equal parts and by speed, and prints the time of a step for each.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from statistics import mean
from time import perf_counter
from typing import TYPE_CHECKING

import torch  # type: ignore[import-not-found]  # the job's own: no part of Forge needs it
import torch.distributed as dist  # type: ignore[import-not-found]  # as above
from torch import nn
from torch.nn.parallel import (  # type: ignore[import-not-found]  # as above
    DistributedDataParallel,
)
from torch.optim import SGD  # type: ignore[import-not-found]  # as above

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH, ANSWERS = 256, 10
# Steps that a rank makes alone, which tell its speed if Forge does not; the first ones warm it up.
WARM, TRIALS = 5, 20


def main() -> None:
    """Train with equal parts, then by speed, and compare."""
    options = _options()
    backend = os.environ.get("FORGE_BACKEND", "gloo")
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    # Intel's threads would wait for each other where ranks share a machine.
    torch.set_num_threads(options.threads)
    shares = shares_of_all(options, device)
    equal = split(options.batch, [1.0] * len(shares))
    by_speed = split(options.batch, shares)
    told = {
        "shares": shares,
        "equal": trained(options, equal, device),
        "by_speed": trained(options, by_speed, device),
    }
    if dist.get_rank() == 0:
        tell(told)
    dist.destroy_process_group()


def shares_of_all(options: argparse.Namespace, device: torch.device) -> list[float]:
    """Return each rank's share: as Forge measured its machine, or else as measured here."""
    known = float(os.environ.get("FORGE_SPEED_SHARE", "0"))
    # Together: a share beside a measured speed would mean nothing.
    if min(gathered(known, device)) > 0:
        return gathered(known, device)
    speeds = gathered(speed(options.batch // dist.get_world_size(), device), device)
    return [each / sum(speeds) for each in speeds]


def speed(count: int, device: torch.device) -> float:
    """Return the samples per second of this rank alone: whole steps take all ranks equally long."""
    model = network().to(device)
    inputs, answers = samples(0, max(count, 1), device)
    # All at once, as later: ranks of one machine share it.
    dist.barrier()
    for step in range(WARM + TRIALS):
        if step == WARM:
            began = perf_counter()
        nn.functional.cross_entropy(model(inputs), answers).backward()
        # Waits for a GPU.
        sum(float(weight.grad.sum()) for weight in model.parameters())
    return len(inputs) * TRIALS / (perf_counter() - began)


def gathered(number: float, device: torch.device) -> list[float]:
    """Return every rank's number."""
    own = torch.tensor([number], dtype=torch.float32, device=device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    return [one.item() for one in every]


def split(batch: int, shares: list[float]) -> list[int]:
    """Split a batch by largest remainder; every rank gets a sample."""
    spare = batch - len(shares)
    if spare < 0:
        raise SystemExit(f"a batch of {batch} is too small for {len(shares)} ranks")
    exact = [spare * share / sum(shares) for share in shares]
    parts = [int(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda rank: parts[rank] - exact[rank])
    for rank in by_remainder[: spare - sum(parts)]:
        parts[rank] += 1
    return [part + 1 for part in parts]


def trained(
    options: argparse.Namespace, parts: list[int], device: torch.device
) -> dict[str, object]:
    """Train a new network with these parts of each batch; return the loss and time of its steps."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network().to(device))
    optimizer = SGD(model.parameters(), lr=0.05)
    start, times, losses = sum(parts[:rank]), [], []
    # The mean of a part counts as much as it has samples: DDP divides the sum by the ranks.
    weight = parts[rank] * ranks / options.batch
    for step in range(options.steps):
        inputs, answers = samples(step, options.batch, device)
        own = slice(start, start + parts[rank])
        dist.barrier()
        began = perf_counter()
        loss = nn.functional.cross_entropy(model(inputs[own]), answers[own]) * weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(sum(gathered(loss.item(), device)) / ranks)
        times.append(perf_counter() - began)
    return {"parts": parts, "losses": losses, "step_s": mean(times[WARM:] or times)}


def samples(step: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the batch of a step, the same on every rank; the answer is the largest input."""
    source = torch.Generator().manual_seed(step)
    inputs = torch.randn(count, WIDTH, generator=source)
    return inputs.to(device), inputs[:, :ANSWERS].argmax(dim=1).to(device)


def network() -> nn.Module:
    """Return a network with the same weights each time; no batch norm, which would see parts."""
    torch.manual_seed(0)
    wide = 4 * WIDTH
    return nn.Sequential(
        *(nn.Linear(WIDTH, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()),
        nn.Linear(wide, ANSWERS),
    )


def tell(told: Mapping[str, object]) -> None:
    """Print the comparison, and keep it as the job's result."""
    for name in ("equal", "by_speed"):
        run = told[name]
        assert isinstance(run, dict)  # noqa: S101  for type checkers
        parts = " + ".join(str(part) for part in run["parts"])
        words = f"{name.replace('_', ' ')}: {parts} samples, {1000 * run['step_s']:.1f} ms per step"
        print(f"{words}, loss {run['losses'][0]:.4f} to {run['losses'][-1]:.4f}", flush=True)
    # Without Forge there may be no such module.
    with suppress(ImportError):
        from forge_worker import job  # noqa: PLC0415

        (job.output_dir() / "result.json").write_text(json.dumps(told), encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=512, help="samples per step, of all ranks")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank")
    return parser.parse_args()


if __name__ == "__main__":
    main()
