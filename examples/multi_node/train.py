"""Train on several machines at once, with the same losses as on one.

Each rank computes its part of the global batch, and DistributedDataParallel averages the gradients.
What Forge adds is marked: the variables of the gang, one backend for all, and rank 0's checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import torch  # type: ignore[import-not-found]  # the job's own: no part of Forge needs it
import torch.distributed as dist  # type: ignore[import-not-found]  # as above
from forge_worker import job
from torch import nn
from torch.nn.parallel import (  # type: ignore[import-not-found]  # as above
    DistributedDataParallel,
)
from torch.optim import SGD  # type: ignore[import-not-found]  # as above

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = 32


def main() -> None:
    """Train up to the last step, from the last checkpoint if there is one."""
    options = _options()
    # Forge: SIGTERM would interrupt a step; `job.should_stop` is checked between steps.
    signal.signal(signal.SIGTERM, lambda *_: None)
    # Forge: a launcher or the worker has set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        # Forge: the backend is chosen once for all members.
        backend = os.environ.get("FORGE_BACKEND", "gloo")
        dist.init_process_group(backend, timeout=timedelta(minutes=5))
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1)).double()
    model = DistributedDataParallel(plain) if size > 1 else plain
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    place = job.checkpoint_dir() / "state.pt"
    for step in range(restored(place, plain, optimizer) + 1, options.steps + 1):
        loss = one_step(model, optimizer, batch(step, options.batch, rank, size), size)
        if rank == 0:
            # Forge: only rank 0's checkpoint is stored, and every rank starts from it.
            save(place, plain, optimizer, step)
            job.report(step=step, total=options.steps, loss=loss)
            print(f"step {step} loss {loss:.12f}", flush=True)
        if agreed(job.should_stop(), size):
            sys.exit(128 + signal.SIGTERM)
    print(f"rank {rank} of {size} has finished", flush=True)
    if size > 1:
        dist.destroy_process_group()


def batch(step: int, count: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a rank's part of the global batch, which is the same however many ranks there are."""
    source = torch.Generator().manual_seed(step)
    inputs = torch.randn(count, FEATURES, generator=source, dtype=torch.float64)
    wanted = inputs.sum(dim=1, keepdim=True).sin()
    part = slice(rank * count // size, (rank + 1) * count // size)
    return inputs[part], wanted[part]


def one_step(
    model: nn.Module, optimizer: SGD, part: tuple[torch.Tensor, torch.Tensor], size: int
) -> float:
    """Take one step, and return the mean loss over the global batch."""
    inputs, wanted = part
    loss = nn.functional.mse_loss(model(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return mean(loss.detach(), size)


def mean(value: torch.Tensor, size: int) -> float:
    """Return the mean of a value over all ranks."""
    if size > 1:
        dist.all_reduce(value)
    return float(value.item()) / size


def agreed(stop: bool, size: int) -> bool:  # noqa: FBT001  a vote
    """Tell whether any rank must stop: a rank that leaves alone would leave the others waiting."""
    return mean(torch.tensor(float(stop)), size) > 0


def save(place: Path, model: nn.Module, optimizer: SGD, step: int) -> None:
    """Replace the checkpoint as a whole."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    unfinished = place.with_name(f".{place.name}.tmp")
    torch.save(state, unfinished)
    unfinished.replace(place)


def restored(place: Path, model: nn.Module, optimizer: SGD) -> int:
    """Load the checkpoint, and return the last step that is done, 0 if there is none."""
    if not place.exists():
        return 0
    state = torch.load(place, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step: int = state["step"]
    print(f"resumed after step {step}", flush=True)
    return step


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--batch", type=int, default=96, help="samples of all ranks together")
    return options.parse_args()


if __name__ == "__main__":
    main()
