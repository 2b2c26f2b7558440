"""A perceptron with one hidden layer, trained by stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from digits import Digits
    from numpy.typing import NDArray

PIXELS, HIDDEN, CLASSES = 64, 48, 10
LEARNING_RATE = 0.05
MOMENTUM = 0.9
PARAMETERS = ("w1", "b1", "w2", "b2")


class Network:
    """Weights and their velocities, by name; together they are all that training changes."""

    def __init__(self, seed: int) -> None:
        # Epochs start at 1 and draw from (seed, epoch), so this stream is separate.
        rng = np.random.default_rng([seed, 0])
        self.state: dict[str, NDArray[np.float64]] = {
            "w1": rng.standard_normal((PIXELS, HIDDEN)) * np.sqrt(2 / PIXELS),
            "b1": np.zeros(HIDDEN),
            "w2": rng.standard_normal((HIDDEN, CLASSES)) * np.sqrt(2 / HIDDEN),
            "b2": np.zeros(CLASSES),
        }
        for name in PARAMETERS:
            self.state[f"v_{name}"] = np.zeros_like(self.state[name])

    def step(self, batch: Digits) -> float:
        """Move the weights by one mini-batch and return its mean cross-entropy before the move."""
        hidden, chances = self._forward(batch.images)
        rows = np.arange(len(batch.labels))
        loss = -np.log(chances[rows, batch.labels]).mean()
        error = chances.copy()
        error[rows, batch.labels] -= 1
        error /= len(rows)
        behind = (error @ self.state["w2"].T) * (hidden > 0)
        self._move(
            w1=batch.images.T @ behind, b1=behind.sum(0), w2=hidden.T @ error, b2=error.sum(0)
        )
        return float(loss)

    def accuracy(self, digits: Digits) -> float:
        """Return the share of images whose most likely class is their label."""
        _, chances = self._forward(digits.images)
        return float((chances.argmax(axis=1) == digits.labels).mean())

    def _forward(
        self, images: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        hidden = np.maximum(images @ self.state["w1"] + self.state["b1"], 0)
        scores = hidden @ self.state["w2"] + self.state["b2"]
        # exp would overflow if the largest score were not subtracted.
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True)

    def _move(self, **gradients: NDArray[np.float64]) -> None:
        for name, gradient in gradients.items():
            velocity = self.state[f"v_{name}"]
            velocity *= MOMENTUM
            velocity -= LEARNING_RATE * gradient
            self.state[name] += velocity
