"""The options of a run: its seed, its length, its size."""

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
    """`jobs_per_s` is the submit rate, `gap_s` the mean time between faults; times are in seconds.

    `drain_s` is how long jobs may take to end once all faults are healed. `only` names the kinds of
    faults wanted; empty means all. `lasting` is the most unfinished jobs at once. With `old`, the
    run starts with workers of the release before; the database is migrated under them. `token`
    is part of all workers' names. With `proxy`, the servers are behind nginx as we ship it, and one
    is replaced each minute. All container workers use `engines` in turn; faults hit only the first.
    Without any, the run starts its own, with `podman` one of Docker and one of Podman.
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
    proxy: bool = False
    podman: bool = False
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    engines: tuple[OwnEngine, ...] = ()

    @property
    def lasting(self) -> int:
        return 20 * self.workers
