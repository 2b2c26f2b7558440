"""Train a small network on handwritten digits, one checkpoint per epoch.

Alone it writes into ./runs. Under Forge it writes where $FORGE_CHECKPOINT_DIR, $FORGE_OUTPUT_DIR
and $FORGE_METRICS_FILE say, and a run that was interrupted ends exactly as one that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import checkpoint
import numpy as np
from digits import Digits, load
from network import PARAMETERS, Network
from stopping import Stopping

BATCH = 32


@dataclass(frozen=True)
class Places:
    """Where this run writes."""

    checkpoints: Path
    output: Path
    metrics: Path

    @classmethod
    def from_environment(cls) -> Places:
        """Take each place from its FORGE_ variable, or from below ./runs."""
        runs = Path("runs")
        return cls(
            Path(os.environ.get("FORGE_CHECKPOINT_DIR", runs / "checkpoint")),
            Path(os.environ.get("FORGE_OUTPUT_DIR", runs / "output")),
            Path(os.environ.get("FORGE_METRICS_FILE", runs / "metrics.jsonl")),
        )


def main() -> None:
    """Train up to the last epoch, from the last checkpoint if there is one."""
    options = _options()
    places = Places.from_environment()
    stopping = Stopping()
    train, test = load()
    network = Network(options.seed)
    done = checkpoint.restore(places.checkpoints, network, seed=options.seed)
    if done >= options.epochs:
        print(f"{done} epochs are done already; nothing is left to train", flush=True)
    elif done:
        print(f"resumed at epoch {done + 1}", flush=True)
    for epoch in range(done + 1, options.epochs + 1):
        ends = time.monotonic() + options.seconds_per_epoch
        loss = _train_one_epoch(network, train, options.seed, epoch, stopping)
        accuracy = network.accuracy(test)
        stopping.wait_until(ends, epoch - 1)
        checkpoint.save(places.checkpoints, network, seed=options.seed, epoch=epoch)
        _report(places.metrics, epoch, options.epochs, loss, accuracy)
    _write_results(places.output, network, test, options.epochs, done)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds-per-epoch",
        type=float,
        default=0.0,
        help="let each epoch last at least so long, to watch or to interrupt a run (default 0)",
    )
    return parser.parse_args()


def _train_one_epoch(
    network: Network, train: Digits, seed: int, epoch: int, stopping: Stopping
) -> float:
    # The order depends only on the epoch, not on earlier interruptions.
    order = np.random.default_rng([seed, epoch]).permutation(len(train.labels))
    losses = []
    for start in range(0, len(order), BATCH):
        stopping.exit_if_asked(epoch - 1)
        rows = order[start : start + BATCH]
        losses.append(network.step(Digits(train.images[rows], train.labels[rows])))
    return float(np.mean(losses))


def _report(metrics: Path, epoch: int, epochs: int, loss: float, accuracy: float) -> None:
    metrics.parent.mkdir(parents=True, exist_ok=True)
    line = {"step": epoch, "total": epochs, "loss": loss, "accuracy": accuracy}
    with metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"epoch {epoch}/{epochs} loss {loss:.3f} accuracy {accuracy:.3f}", flush=True)


def _write_results(output: Path, network: Network, test: Digits, epochs: int, done: int) -> None:
    output.mkdir(parents=True, exist_ok=True)
    weights: dict[str, Any] = {name: network.state[name] for name in PARAMETERS}
    np.savez(output / "model.npz", **weights)
    result = {
        "accuracy": network.accuracy(test),
        "epochs": epochs,
        "resumed_from": done or None,
    }
    (output / "result.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(f"accuracy {result['accuracy']:.3f}, model in {output / 'model.npz'}", flush=True)


if __name__ == "__main__":
    main()
