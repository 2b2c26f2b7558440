"""A training loop's steps, from the one after the newest checkpoint, which save and leave."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from forge_worker import job
from forge_worker.integrations import group

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = 2


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
    group.listen()
    folder = job.checkpoint_dir()
    for leftover in folder.glob("unfinished-*"):
        shutil.rmtree(str(leftover), ignore_errors=True)
    group.agreed()
    done = newest(folder)
    if done:
        saver.load(folder / f"step-{done}")
    for step in range(done + 1, total + 1):
        yield step
        stops = group.agreed(asked=group.asked())
        if stops or step % save_every == 0 or step == total:
            _commit(saver, folder, step)
        # The progress of each machine is watched for stalls.
        if group.first_here():
            job.report(step=step, total=total)
        if stops and step < total:
            group.leave()


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
    group.agreed()
    if group.first_here():
        unfinished.replace(place)
        job.save_now(step)
        for old in _saved(folder)[:-KEPT]:
            shutil.rmtree(str(folder / f"step-{old}"), ignore_errors=True)
    group.agreed()
