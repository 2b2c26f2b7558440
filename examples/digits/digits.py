"""The handwritten digits: 1,797 images of 8 x 8 pixels, read from the file beside this one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATA = Path(__file__).with_name("digits.csv.gz")
HELD_OUT = 360
BRIGHTEST = 16.0


@dataclass(frozen=True)
class Digits:
    """Images, float64 of shape (n, 64) within 0..1, and their labels, int64 of shape (n,)."""

    images: NDArray[np.float64]
    labels: NDArray[np.int64]


def load() -> tuple[Digits, Digits]:
    """Return the training split and the held-out test split, the same ones every time."""
    rows = np.loadtxt(DATA, delimiter=",")
    images, labels = rows[:, :-1] / BRIGHTEST, rows[:, -1].astype(np.int64)
    # The file is ordered by writer, so the split is random, with a fixed seed.
    order = np.random.default_rng(0).permutation(len(rows))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])
