"""Make a folder of the project the checkpoint folder, for programs that choose it themselves."""

import os
import stat
from pathlib import Path, PurePath, PurePosixPath

from forge_worker.files.safe_files import Parts, entered, remove_tree, status_of
from forge_worker.prepare.provisions import ProvisionFailed


def link_checkpoint(work: Path, name: str, checkpoint: Path, inside: PurePath) -> None:
    """Replace a folder of the project by a link to the checkpoint folder.

    The files that the project has there are what the job starts from, unless a checkpoint was
    restored.

    Args:
        work: the unpacked project.
        name: the folder's path in it.
        checkpoint: the checkpoint folder.
        inside: its path as the job sees it.

    Raises:
        ProvisionFailed: a file or a link is in the way.
        OSError: the disk is full or faulty.
    """
    *above, last = PurePosixPath(name).parts
    try:
        _make(work, tuple(above))
        found = status_of(work, (*above, last))
        if found is not None and stat.S_ISDIR(found.st_mode):
            _start_from(work / name, checkpoint)
        with entered(work, tuple(above)) as place:
            os.symlink(inside, last, dir_fd=place)
    except (FileExistsError, NotADirectoryError) as error:
        raise ProvisionFailed(
            f"{name!r} cannot be the checkpoint folder, because the project has a file or a link"
            " there",
            hint="name another folder with --checkpoint-dir, or leave the file out of the project",
        ) from error


def _make(work: Path, parts: Parts) -> None:
    for depth, part in enumerate(parts):
        if status_of(work, parts[: depth + 1]) is None:
            with entered(work, parts[:depth]) as place:
                os.mkdir(part, dir_fd=place)


def _start_from(folder: Path, checkpoint: Path) -> None:
    if any(checkpoint.iterdir()):
        remove_tree(folder)
    else:
        # It takes the place of the empty folder.
        folder.rename(checkpoint)
