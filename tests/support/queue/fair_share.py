"""A simulated cluster whose owners share GPUs as the queue has them share.

`lead`, `share` and `count` are the statements' arithmetic, in Python; test_usage.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from random import Random
from statistics import median

from forge_schema.model.worker import Capacity
from forge_schema.queue.lane import Lane, LaneOrder

DAY_S, AWAY_S, NOTED_S, GPU_S = 86_400.0, 300.0, 120.0, 900.0
TICK_S, REFRESH_S, PATIENCE_S = 10.0, 2.0, 10.0


@dataclass
class Owner:
    """An owner with more jobs than can run; each takes between half and one and a half `job_s`."""

    weight: float = 1
    gpus: int = 1
    job_s: float = 60.0
    waits: bool = True
    fits: bool = True
    held: int = 0
    level: float | None = None
    at: float = 0.0
    gpu_s: float = 0.0
    since: float = 0.0
    jobs: int = 0

    def hold(self, gpus: int, now: float) -> None:
        """Hold more GPUs from now on, or fewer."""
        self.gpu_s += self.held * (now - self.since)
        self.held += gpus
        self.since = now


@dataclass
class Usage:
    """What a count leaves behind."""

    level: float = 0.0
    pace: float = 0.0
    counted_at: float | None = None

    def lead(self, owner: Owner) -> float:
        """Return what `forge_lead` does."""
        if owner.level is None or self.counted_at is None:
            return 0.0
        least = 0.0 if self.counted_at - owner.at > AWAY_S else -DAY_S * self.pace
        return max(least, min(owner.level - self.level, DAY_S * self.pace))

    def share(self, owner: Owner) -> float:
        """Return what `forge_shares` does."""
        lead = self.lead(owner)
        slower = max(-lead, 0) / self.pace if self.pace else 0.0
        return owner.held / owner.weight + lead / (GPU_S + slower)

    def count(self, owners: list[Owner], now: float) -> None:
        """Do what `count_usage` does."""
        running = [owner for owner in owners if owner.held]
        if not running:
            return
        seconds = 0.0 if self.counted_at is None else min(now - self.counted_at, 60.0)
        for owner in owners:
            noted = owner.level is not None and now - owner.at <= NOTED_S
            if owner.held or (owner.waits and not noted):
                owner.level = self.level + self.lead(owner) + owner.held / owner.weight * seconds
                owner.at = now
        self.level = median(owner.level or 0.0 for owner in running)
        self.pace = sum(owner.held for owner in running) / sum(owner.weight for owner in running)
        self.counted_at = now


@dataclass
class Cluster:
    """GPUs, their owners, and time."""

    owners: list[Owner]
    gpus: int
    seed: int = 1
    now: float = 0.0
    claims: int = 0
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # noqa: S311  reproducible
        self._free = self.gpus
        self._running: list[tuple[float, int]] = []
        self._passed: dict[int, float] = {}
        self._read_at = -REFRESH_S
        self._tick_at = TICK_S
        self._lanes = [
            Lane(
                n,
                _gpus(owner.gpus),
                limited=False,
                owner=str(n),
                weight=owner.weight,
                share=0.0,
                shape_id=owner.gpus,
            )
            for n, owner in enumerate(self.owners)
        ]
        self._shapes = {owner.gpus for owner in self.owners}
        self._order = LaneOrder(())

    def run(self, *, claims: int | None = None, seconds: float | None = None) -> None:
        """Let this many claims or seconds pass."""
        until = None if seconds is None else self.now + seconds
        most = None if claims is None else self.claims + claims
        while (until is None or self.now < until) and (most is None or self.claims < most):
            if self._free:
                self._look()
            self._advance()
        for owner in self.owners:
            owner.hold(0, self.now)

    def measured(self, seconds: float) -> list[float]:
        """Return how many GPUs each owner has on average, for some time from now."""
        before = [owner.gpu_s for owner in self.owners]
        self.run(seconds=seconds)
        return [(o.gpu_s - gpu_s) / seconds for o, gpu_s in zip(self.owners, before, strict=True)]

    def _look(self) -> None:
        if self.now - self._read_at >= REFRESH_S:
            self._read_at = self.now
            for one, lane in zip(self.owners, self._lanes, strict=True):
                lane.weight, lane.share = one.weight, self.usage.share(one)
                lane.nice = 0 if one.waits and one.fits else None
            self._order = LaneOrder(self._lanes)
        while (owner := self._next()) is not None:
            self._start(owner)

    def _next(self) -> int | None:
        """Return whose job starts next; for one that others pass by for long, room is kept."""
        for lane in self._order.first(1, self._shapes, ()):
            if self._passed.setdefault(lane.id, self.now) <= self.now - PATIENCE_S:
                return lane.id if lane.needs.gpus <= self._free else None
        shapes = [gpus for gpus in self._shapes if gpus <= self._free]
        fitting = self._order.first(1, shapes, ())
        return fitting[0].id if fitting else None

    def _start(self, n: int) -> None:
        owner = self.owners[n]
        self._passed.pop(n, None)
        self._free -= owner.gpus
        owner.hold(owner.gpus, self.now)
        owner.jobs += 1
        self.claims += 1
        self._lanes[n].share += self._lanes[n].step
        heappush(self._running, (self.now + owner.job_s * self._random.uniform(0.5, 1.5), n))

    def _advance(self) -> None:
        ends_at = self._running[0][0] if self._running else self._tick_at
        looks_at = self._read_at + REFRESH_S if self._free else self._tick_at
        self.now = min(ends_at, self._tick_at, max(looks_at, self.now + 0.1))
        while self._running and self._running[0][0] <= self.now:
            owner = self.owners[heappop(self._running)[1]]
            owner.hold(-owner.gpus, self.now)
            self._free += owner.gpus
        if self.now >= self._tick_at:
            self._tick_at += TICK_S
            self.usage.count(self.owners, self.now)


@cache
def _gpus(count: int) -> Capacity:
    return Capacity(1_000, 1, 1, count, "*", 0, count)
