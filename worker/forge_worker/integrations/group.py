"""The processes that train together: what they agree on, the request to stop, and their steps."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from forge_worker import job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What a program killed by SIGTERM exits with. After 0, the job would have succeeded.
STOPPED = 143
_heard = threading.Event()
KEPT = 2


def agreed(*, asked: bool = False) -> bool:
    """Wait for all processes of the group, and return whether any of them is asked to stop."""
    distributed = _group()
    if distributed is None:
        return asked
    import torch  # type: ignore[import-not-found,unused-ignore]

    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor(int(asked), device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())


def gathered(value: Any) -> list[Any]:  # noqa: ANN401 - whatever can be pickled
    """Return the values of all processes of the group, by rank; waits for all of them."""
    distributed = _group()
    if distributed is None:
        return [value]
    values = [value] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def rank() -> int:
    """Return the number of this process in the group; before there is one, what it will be."""
    distributed = _group()
    if distributed is not None:
        return int(distributed.get_rank())
    # Lightning starts processes that know only their number on this machine.
    return int(os.environ.get("RANK", "0")) or int(os.environ.get("LOCAL_RANK", "0"))


def first_here() -> bool:
    """Return whether this process is the first on its machine, which commits for the others."""
    return int(os.environ.get("LOCAL_RANK") or rank()) == 0


def _group() -> Any:  # noqa: ANN401 - the module, if it is in use
    distributed = sys.modules.get("torch.distributed")
    usable = distributed and distributed.is_available() and distributed.is_initialized()
    return distributed if usable else None


def listen() -> None:
    """Survive SIGTERM from now on, so that the current step can be saved; main thread only."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: _heard.set())


def asked() -> bool:
    """Return whether this process is asked to stop."""
    return _heard.is_set() or job.should_stop()


def leave() -> NoReturn:
    """Exit as a program that was stopped."""
    sys.exit(STOPPED)


class Saver(ABC):
    """Saves and loads the state in a folder; of several processes, all call each method."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the state into the folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read the state from the folder."""


def steps(saver: Saver, total: int, save_every: int) -> Iterator[int]:
    """Yield the numbers of the steps that are left, of 1 to `total`.

    Every `save_every` steps, and after the last one, the state is saved and committed. If the job
    is asked to stop, it is saved at once and the process exits with 143.
    """
    listen()
    folder = job.checkpoint_dir()
    for leftover in folder.glob("unfinished-*"):
        shutil.rmtree(str(leftover), ignore_errors=True)
    agreed()
    done = newest(folder)
    if done:
        saver.load(folder / f"step-{done}")
    for step in range(done + 1, total + 1):
        yield step
        stops = agreed(asked=asked())
        if stops or step % save_every == 0 or step == total:
            _commit(saver, folder, step)
        # The progress of each machine is watched for stalls.
        if first_here():
            job.report(step=step, total=total)
        if stops and step < total:
            leave()


def newest(folder: Path) -> int:
    """Return the step of the newest checkpoint in a folder, 0 if there is none."""
    return max(_saved(folder), default=0)


def _saved(folder: Path) -> list[int]:
    matches = (re.fullmatch(r"step-(\d+)", path.name) for path in folder.iterdir())
    return sorted(int(name[1]) for name in matches if name)


def _commit(saver: Saver, folder: Path, step: int) -> None:
    # All processes write into one folder, which is renamed once they have.
    place, unfinished = folder / f"step-{step}", folder / f"unfinished-{step}"
    unfinished.mkdir(parents=True, exist_ok=True)
    saver.save(unfinished)
    agreed()
    if first_here():
        unfinished.replace(place)
        job.save_now(step)
        for old in _saved(folder)[:-KEPT]:
            shutil.rmtree(str(folder / f"step-{old}"), ignore_errors=True)
    agreed()
