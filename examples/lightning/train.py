"""Train a small network with Lightning's Trainer, which knows nothing of Forge.

It learns to add eight numbers. It goes on from the newest file in Lightning's own folder.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import lightning  # type: ignore[import-not-found,unused-ignore]
import torch  # type: ignore[import-not-found,unused-ignore]
from torch import nn
from torch.utils.data import (  # type: ignore[import-not-found,unused-ignore]
    DataLoader,
    TensorDataset,
)


class Adder(lightning.LightningModule):  # type: ignore[misc,unused-ignore]
    """A network of one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        self.total = 0.0

    def training_step(self, batch: Any, _number: int) -> Any:  # noqa: ANN401  tensors
        """Return the loss of one batch."""
        numbers, sums = batch
        loss = nn.functional.mse_loss(self.layers(numbers), sums)
        self.total += loss.item()
        return loss

    def on_train_epoch_end(self) -> None:
        """Print the loss of the epoch."""
        print("epoch", self.current_epoch, self.total, flush=True)
        self.total = 0.0

    def configure_optimizers(self) -> Any:  # noqa: ANN401  Lightning's own union
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), 1e-3)


def newest() -> Path | None:
    """Return the file of the last step that Lightning has saved, in any of its versions."""
    saved = {
        int(said[1]): path
        for path in Path("lightning_logs").glob("*/checkpoints/*.ckpt")
        if (said := re.search(r"step=(\d+)", path.name))
    }
    return saved[max(saved)] if saved else None


def main() -> None:
    """Train, from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    asked = parser.parse_args()
    lightning.seed_everything(7)
    numbers = torch.randn(512, 8)
    rows = DataLoader(TensorDataset(numbers, numbers.sum(1, keepdim=True)), batch_size=8)
    found = newest()
    print("resumed from", found, flush=True)
    trainer = lightning.Trainer(max_epochs=asked.epochs, enable_progress_bar=False)
    trainer.fit(Adder(), rows, ckpt_path=found)


if __name__ == "__main__":
    main()
