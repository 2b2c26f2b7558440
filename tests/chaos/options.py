"""What a run is told: its seed, its length, its size."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from support.engine.own_engine import OwnEngine

TTL_S = 8.0
HEARTBEAT_S = 1.5


@dataclass(frozen=True)
class Options:
    """`jobs_per_s` are submitted, a fault strikes each `gap_s` on average, times in seconds.

    `drain_s` is how long jobs may take to end by themselves once all is healed. `only` names the
    kinds of faults wanted, none means all; `lasting` is how many jobs may be unfinished at once.
    With `old`, the run begins with workers of the version before, and the database is migrated
    under them. `token` is in the names of all workers; `engines` are used by all container workers
    in turn, and the first of them is the one that faults strike.
    """

    seed: int
    minutes: float
    folder: Path
    workers: int = 20
    jobs_per_s: float = 3.0
    gap_s: float = 5.0
    drain_s: float = 120.0
    only: tuple[str, ...] = ()
    containers: bool = True
    old: bool = True
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    engines: tuple[OwnEngine, ...] = ()

    @property
    def lasting(self) -> int:
        return 20 * self.workers
