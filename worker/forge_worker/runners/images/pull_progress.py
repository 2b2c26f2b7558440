"""An engine's many steps of a pull, as a line now and then."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_S = 5.0
MB = 1_000_000
DONE = {"Pull complete", "Already exists"}


@dataclass
class PullProgress:
    """Told each step; says how far the pull is, at most every `every_s` seconds."""

    name: str
    say: Callable[[str], None]
    every_s: float = EVERY_S
    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _began: float = field(default_factory=time.monotonic)
    _said: float | None = None

    def __call__(self, step: dict[str, Any]) -> None:
        """Take note of a step."""
        layer, status = step.get("id", ""), step.get("status", "")
        detail = step.get("progressDetail")
        if layer and detail is not None:
            self._layers.setdefault(layer, (0, 0))
        if layer and status in DONE:
            self._layers.setdefault(layer, (0, 0))
            self._done.add(layer)
        if status == "Downloading" and detail:
            self._layers[layer] = (detail.get("current", 0), detail.get("total", 0))
        if status == "Download complete" and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        self._say_now_and_then()

    def end(self) -> None:
        """Say what was pulled in all."""
        took_s = time.monotonic() - self._began
        self.say(f"pulled {self.name}: {self._summary()} in {took_s:.0f} s")

    def _say_now_and_then(self) -> None:
        if self._said is None:
            self._said = time.monotonic()
            self.say(f"pulling {self.name}")
        elif time.monotonic() - self._said >= self.every_s:
            self._said = time.monotonic()
            self.say(f"pulling {self.name}: {self._summary()}")

    def _summary(self) -> str:
        came = sum(current for current, _ in self._layers.values()) / MB
        total = sum(total for _, total in self._layers.values()) / MB
        return f"{len(self._done)} of {len(self._layers)} layers, {came:.1f} of {total:.1f} MB"
