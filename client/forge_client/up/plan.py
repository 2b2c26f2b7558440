"""What a `forge up` is to start. By itself, so that whoever starts one need not load it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """What to start.

    `cpus` and `memory_mb` are for each worker, None shares the machine out; `port` is the
    server's, None takes the one that it had before, or else a free one.
    """

    dir: Path
    workers: int = 1
    cpus: float | None = None
    memory_mb: int | None = None
    port: int | None = None
