"""The job that every queue is given: it notes that it began, and waits until it may end.

Only the standard library: it runs in each queue's own environment.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

LOOK_S = 0.05


async def wait() -> None:
    """Wait as a coroutine."""
    with noted() as run:
        while not may_end(run):  # noqa: ASYNC110  another process makes the file
            await asyncio.sleep(LOOK_S)


def wait_here() -> None:
    """Wait as a plain function."""
    with noted() as run:
        while not may_end(run):
            time.sleep(LOOK_S)


@contextmanager
def noted() -> Iterator[int]:
    """Note the run's beginning and its end, and yield its number."""
    run = 1 + sum('"began"' in line for line in lines())
    note("began", run)
    try:
        yield run
    except BaseException:
        note("stopped", run)
        raise
    note("ended", run)


def folder() -> Path:
    return Path(os.environ["ZOMBIE_FOLDER"])


def lines() -> list[str]:
    notes = folder() / "notes"
    return notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []


def note(what: str, run: int) -> None:
    line = json.dumps({"what": what, "run": run, "pid": os.getpid(), "at": time.time()})
    with (folder() / "notes").open("a", encoding="utf-8") as notes:
        notes.write(f"{line}\n")


def may_end(run: int) -> bool:
    return (folder() / f"end-{run}").exists()


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    wait_here()
