"""The event files that a job writes, each read from where it was left."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from os import stat_result
from pathlib import Path
from stat import S_ISREG

from forge_schema.model.results import PROGRESS

from forge_worker.attempt.attempt import Attempt
from forge_worker.files.formats.records import BrokenFile, records
from forge_worker.files.safe_files import Parts, opened, walk
from forge_worker.job_io.tensorboard.scalars import Scalar, scalars

# TensorBoard itself takes these files for events; the number is when the writer began.
NAME = re.compile(r"events\.out\.tfevents\.(\d{10,12})\..+")
# Their places must fit in the page of cursors.
MOST_FILES = 16
LOOKED_AT = 20_000
BATCH = 500
RECORDS = 20_000


class EventFiles:
    """Event files that were begun during this attempt; those of a bundle or a checkpoint are older.

    Each has a number, which it keeps as long as the attempt lasts.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._folders = attempt.folders
        top, *below = attempt.saved.folder
        # In a large project, a walk of all of it may not get as far as the checkpoint folder.
        self._roots: tuple[tuple[Path, Parts], ...] = (
            (attempt.folders.work, ()),
            (attempt.folders.output, ()),
            (attempt.folders.root / top, tuple(below)),
        )
        self._cursors = attempt.cursors
        self._found: dict[int, tuple[Path, Parts]] = {}

    def look(self) -> list[int]:
        """Look for new files, and return the numbers of all."""
        for root, parts, status in sorted(self._new(), key=lambda one: one[1][-1]):
            number = self._number(status.st_ino)
            if number is not None:
                self._found[number] = (root, parts)
        return sorted(self._found)

    def read(self, number: int, place: int, most: int = BATCH) -> tuple[list[bytes], int]:
        """Return a file's next lines from a place on, and where they end."""
        root, parts = self._found[number]
        lines: list[bytes] = []
        with suppress(OSError, BrokenFile), opened(root, "/".join(parts)) as file:
            size = file.seek(0, 2)
            for record in islice(records(file, place, size), RECORDS):
                step, found = scalars(record.data or b"")
                if found and record.intact():
                    lines.append(self._line(number, step, found))
                place = record.end
                if len(lines) >= most:
                    break
        return lines, place

    def left(self, number: int, place: int) -> int:
        """Return how many events with scalars follow a place."""
        root, parts = self._found[number]
        count = 0
        with suppress(OSError, BrokenFile), opened(root, "/".join(parts)) as file:
            for record in records(file, place, file.seek(0, 2)):
                count += bool(scalars(record.data or b"")[1])
        return count

    def _number(self, inode: int) -> int | None:
        for number in range(MOST_FILES):
            name = f"events{number}_inode"
            if not self._cursors[name]:
                self._cursors.keep(**{name: inode})
            if self._cursors[name] == inode:
                return number
        return None

    def _line(self, number: int, step: int, found: list[Scalar]) -> bytes:
        values = {self._key(number, tag): value for tag, value in found}
        return json.dumps({**values, "step": step}).encode()

    def _key(self, number: int, tag: str) -> str:
        """Return a tag, after the name of its folder if that is not the first file's."""
        folder = self._found[number][1][:-1]
        first = self._found.get(0)
        alone = first is not None and first[1][:-1] == folder and tag not in PROGRESS
        return tag if alone else f"{folder[-1] if folder else 'tensorboard'}/{tag}"

    def _new(self) -> Iterator[tuple[Path, Parts, stat_result]]:
        began_s = int((self._folders.root / "lease.json").stat().st_mtime)
        for root, start in self._roots:
            for parts, status in islice(walk(root, start), LOOKED_AT):
                name = NAME.fullmatch(parts[-1])
                if name and int(name[1]) >= began_s and S_ISREG(status.st_mode):
                    yield root, parts, status
