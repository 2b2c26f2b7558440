"""The checkpoint: one file, replaced as a whole after every epoch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from network import Network

NAME = "checkpoint.npz"


def save(folder: Path, network: Network, *, seed: int, epoch: int) -> None:
    """Store the state after `epoch`; a kill at any instant leaves the old file or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"seed": seed, "epoch": epoch, **network.state}
    unfinished = folder / f".{NAME}.tmp"
    with unfinished.open("wb") as file:
        np.savez(file, **content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / NAME)


def restore(folder: Path, network: Network, *, seed: int) -> int:
    """Load the state into `network` and return the last completed epoch, 0 if there is none.

    Raises:
        SystemExit: the checkpoint belongs to a run with another seed.
    """
    path = folder / NAME
    if not path.exists():
        return 0
    with np.load(path) as stored:
        if int(stored["seed"]) != seed:
            raise SystemExit(f"{path} is from a run with --seed {int(stored['seed'])}, not {seed}")
        for name in network.state:
            network.state[name] = stored[name]
        return int(stored["epoch"])
