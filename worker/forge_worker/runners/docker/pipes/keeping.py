"""The agent's side of the program that keeps pipes: it is started with the first of them."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import structlog

PACKAGES = str(Path(__file__).parents[4])
MARK = "forge-pipes"
BOOT = (
    f"import sys; sys.path.insert(0, {PACKAGES!r}); "
    "from forge_worker.runners.docker.pipes.keeper import main; main()"
)

log = structlog.get_logger(__name__)


class Keeping:
    """One program, for all pipes of this process."""

    def __init__(self) -> None:
        self._orders: int | None = None
        self._lock = threading.Lock()

    def keep(self, pipe: Path, output: Path) -> None:
        """Have a pipe kept open for its log; where that cannot be, a job runs all the same."""
        order = json.dumps([str(pipe), str(output.absolute())]).encode() + b"\n"
        with self._lock:
            try:
                self._tell(order)
            except OSError as error:
                log.warning("no program keeps this job's pipe", pipe=str(pipe), error=str(error))

    def _tell(self, order: bytes) -> None:
        if self._orders is not None:
            try:
                os.write(self._orders, order)
            except BrokenPipeError:  # it was killed
                os.close(self._orders)
                self._orders = None
            else:
                return
        self._orders = start()
        os.write(self._orders, order)


def start() -> int:
    """Start the program and return the pipe to it.

    Raises:
        OSError: it cannot be started.
    """
    theirs, ours = os.pipe()
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", BOOT, MARK, str(os.getpid())],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=[],
        )
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return ours


keeping = Keeping()
