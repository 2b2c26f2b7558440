"""Two queues on one machine, whose workers have the same names and share two engines."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

from chaos.options import Options
from chaos.parts.object_store import AWS
from chaos.parts.own_containers import engine_may_run, engine_with_image
from chaos.run import Outcome, run

if TYPE_CHECKING:
    from support.engine.own_engine import OwnEngine


def run_two(options: Options) -> list[tuple[Outcome, Options]]:
    """Execute two runs at once, each with its own faults and folder.

    Raises:
        AssertionError: a bed did not start.
    """
    # The first run to end must not remove the other's credentials.
    with ExitStack() as stack, patch.dict(os.environ, AWS), ThreadPoolExecutor(2) as threads:
        there = options.containers and engine_may_run()
        engines = [stack.enter_context(engine_with_image()) for _ in range(2 if there else 0)]
        both = [_queue(options, n, tuple(engines[n:] + engines[:n])) for n in range(2)]
        return list(zip(threads.map(run, both), both, strict=True))


def _queue(options: Options, n: int, engines: tuple[OwnEngine, ...]) -> Options:
    folder = options.folder / f"queue-{n}"
    folder.mkdir(mode=0o755)
    return replace(options, seed=options.seed + n, folder=folder, engines=engines)
