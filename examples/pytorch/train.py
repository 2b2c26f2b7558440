"""Train a network to tell the arms of a spiral apart, in the way of any PyTorch training.

What Forge asks for is marked: a checkpoint that is replaced as a whole, and leaving when asked to.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import torch  # type: ignore[import-not-found]  # the job's own: no part of Forge needs it
from forge_worker import job
from torch import nn
from torch.optim import AdamW, Optimizer  # type: ignore[import-not-found]  # as above
from torch.utils.data import DataLoader, TensorDataset  # type: ignore[import-not-found]  # as above

if TYPE_CHECKING:
    from pathlib import Path

ARMS = 5
BATCH = 64


def main() -> None:
    """Train up to the last epoch, from the last checkpoint if there is one."""
    options = _options()
    # Forge: SIGTERM would interrupt a step; `job.should_stop` is checked between steps.
    signal.signal(signal.SIGTERM, lambda *_: None)
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if os.environ.get("FORGE_DEVICE") == "cuda" else "cpu")
    points, arms = spirals(options.points)
    model = network().to(device)
    optimizer = AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(points, arms), batch_size=BATCH, shuffle=True)
    place = job.checkpoint_dir() / "state.pt"
    done = restored(place, model, optimizer)
    for epoch in range(done + 1, options.epochs + 1):
        loss = train_one_epoch(model, optimizer, loader, device)
        save(place, model, optimizer, epoch)
        job.report(step=epoch, total=options.epochs, loss=loss)
    accuracy = share_right(model, points.to(device), arms.to(device))
    result = {"accuracy": accuracy, "epochs": options.epochs, "resumed_after": done}
    (job.output_dir() / "result.json").write_text(json.dumps(result), encoding="utf-8")
    torch.save(model.state_dict(), job.output_dir() / "model.pt")
    print(f"accuracy {accuracy:.4f}", flush=True)


def train_one_epoch(
    model: nn.Module, optimizer: Optimizer, loader: DataLoader, device: torch.device
) -> float:
    """Go once through all points, and return the mean loss."""
    total = 0.0
    for points, arms in loader:
        if job.should_stop():
            # The last whole epoch is saved; the one under way is trained again.
            print("stopping, as asked", flush=True)
            sys.exit(128 + signal.SIGTERM)
        loss = nn.functional.cross_entropy(model(points.to(device)), arms.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def save(place: Path, model: nn.Module, optimizer: Optimizer, epoch: int) -> None:
    """Replace the checkpoint as a whole: a kill at any instant leaves the old one or the new."""
    state = {
        "epoch": epoch,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        # For the order of the points and the dropout in later epochs.
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all(),
    }
    unfinished = place.with_name(f".{place.name}.tmp")
    torch.save(state, unfinished)
    unfinished.replace(place)


def restored(place: Path, model: nn.Module, optimizer: Optimizer) -> int:
    """Load the checkpoint, and return the last epoch that is done, 0 if there is none."""
    if not place.exists():
        return 0
    state = torch.load(place, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    torch.cuda.set_rng_state_all(state["cuda_rng"])
    epoch: int = state["epoch"]
    print(f"resumed after epoch {epoch}", flush=True)
    return epoch


def network() -> nn.Module:
    """Return a small network of two hidden layers."""
    hidden = 128
    return nn.Sequential(
        *(nn.Linear(2, hidden), nn.ReLU(), nn.Dropout(0.1)),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, ARMS)),
    )


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points on the arms of a spiral, with some noise, and the arm of each."""
    source = torch.Generator().manual_seed(1)
    arms = torch.randint(ARMS, (count,), generator=source)
    radius = torch.rand(count, generator=source).sqrt()
    angle = 4 * radius + arms * (2 * torch.pi / ARMS)
    angle += 0.1 * torch.randn(count, generator=source)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arms


def share_right(model: nn.Module, points: torch.Tensor, arms: torch.Tensor) -> float:
    """Return the share of the points whose arm the network tells."""
    model.eval()
    with torch.no_grad():
        right: float = (model(points).argmax(dim=1) == arms).float().mean().item()
    return right


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--points", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
