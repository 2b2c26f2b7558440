"""Pack many tasks into few jobs: each of these has a list of commands, and what runs them."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from forge_schema.model.quantities import counted

from forge_client.errors import InvalidInput
from forge_client.project import task_runner
from forge_client.project.bundle import Listing, scan
from forge_client.project.matrix import NAME_LENGTH
from forge_client.project.request import Request
from forge_client.project.submit import Parcel

FOLDER = ".forge-tasks"
# Of one job: their records are its result.
MOST_TASKS = 1000
T = TypeVar("T")


def packs(tasks: Sequence[T], per_job: int) -> list[Sequence[T]]:
    """Return tasks in packs of so many; `ClientError` if a job cannot have so many tasks."""
    if not 1 <= per_job <= MOST_TASKS:
        raise InvalidInput(
            f"a job cannot have {counted(per_job, 'task')}",
            hint=f"pack 1 to {MOST_TASKS} of them into a job",
        )
    return [tasks[at : at + per_job] for at in range(0, len(tasks), per_job)]


@dataclass(frozen=True)
class Packed:
    """The jobs to submit, and what adds the files that they run to those of their project."""

    requests: Sequence[Request]
    files: Callable[[Parcel], Parcel]


@contextmanager
def packing(points: Sequence[Request], per_job: int | None) -> Iterator[Packed]:
    """Pack the commands of jobs into fewer ones, whose other fields are those of the first.

    Their files exist within the block. Without `per_job`, the jobs stay as they are.
    """
    if per_job is None:
        yield Packed(points, lambda parcel: parcel)
        return
    groups = packs(points, per_job)
    with tempfile.TemporaryDirectory(prefix="forge-tasks-") as staged:
        folder = Path(staged) / FOLDER
        folder.mkdir()
        (folder / "run.py").write_bytes(Path(task_runner.__file__).read_bytes())
        for number, group in enumerate(groups):
            tasks = [
                {"name": task.name, "parameters": task.parameters or {}, "command": task.command}
                for task in group
            ]
            (folder / f"{number}.json").write_text(json.dumps(tasks), encoding="utf-8")
        requests = [_job(group, number) for number, group in enumerate(groups)]
        yield Packed(requests, lambda parcel: with_files(parcel, Path(staged)))


def _job(group: Sequence[Request], number: int) -> Request:
    first, last = group[0], group[-1]
    key = first.idempotency_key
    name = f"{first.name} to {last.name}" if len(group) > 1 else str(first.name)
    return first.model_copy(
        update={
            "command": ["python3", f"{FOLDER}/run.py", str(number)],
            "parameters": None,
            "name": name[:NAME_LENGTH],
            "idempotency_key": key and f"{key}:{len(group)}",
        }
    )


def with_files(parcel: Parcel, staged: Path) -> Parcel:
    """Return the files of a project with those of another folder, which replace its own."""
    ours = scan(staged)
    names = {entry.name.split("/")[0] for entry in ours.entries}
    theirs = (entry for entry in parcel.listing.entries if entry.name.split("/")[0] not in names)
    listing = Listing(parcel.listing.root, (*theirs, *ours.entries))
    return replace(parcel, listing=listing)
