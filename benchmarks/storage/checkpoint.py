"""One large checkpoint: stored, stored again with a tenth changed, and restored."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO

import boto3
from forge_worker.files.safe_files import weight
from forge_worker.job_io.checkpoints import CheckpointSync

from benchmarks.storage.bed import LIMIT_MB, Way, way

PIECE = 1 << 20
TENTH = 10


@dataclass
class Figures:
    """What an act took: seconds, CPU seconds of this process and of the server, bytes."""

    name: str
    took_s: float = 0.0
    busy_s: float = 0.0
    served_s: float = 0.0
    read: int = 0
    written: int = 0
    sent: int = 0
    extra_disk: int = 0


def fill(folder: Path, files: int, size: int) -> None:
    """Write files that have nothing in common."""
    for number in range(files):
        with (folder / f"shard-{number}").open("wb") as file:
            _write(file, size)
    os.sync()


def change(folder: Path) -> None:
    """Rewrite the first tenth of each file."""
    for path in folder.iterdir():
        with path.open("r+b") as file:
            _write(file, path.stat().st_size // TENTH)
    os.sync()


def _write(file: BinaryIO, size: int) -> None:
    file.writelines(os.urandom(min(PIECE, size - done)) for done in range(0, size, PIECE))


def checkpoints(
    root: Path, files: int, size: int, *, over_http: bool, store_url: str | None
) -> list[Figures]:
    """Store and restore on one transport and one store."""
    with way(root, over_http=over_http, store_url=store_url) as made:
        attempt, objects = made.attempt()
        folder, sent = attempt.folders.checkpoint, [0]
        fill(folder, files, size)
        put: Callable[..., bool] = objects.put

        def counted(key: str, data: bytes, **words: Any) -> bool:  # noqa: ANN401  passed on
            sent[0] += len(data)
            return put(key, data, **words)

        objects.put = counted  # type: ignore[method-assign]
        sync = CheckpointSync(attempt, objects, made.gateway, LIMIT_MB)
        found = []
        for name in ("stored", "a tenth changed"):
            sent[0] = 0
            with measured(name, attempt.folders.staging, made) as figures:
                sync.step()
            figures.sent = sent[0]
            found.append(figures)
            change(folder)
        shutil.rmtree(folder)
        made.queue.release(attempt.fence)
        following, objects = made.attempt()
        assert following.fence.job_id == attempt.fence.job_id
        sync = CheckpointSync(following, objects, made.gateway, LIMIT_MB)
        with measured("restored", following.folders.staging, made) as figures:
            sync.restore()
        assert len(list(following.folders.checkpoint.iterdir())) == files
        return [*found, figures]


def copied(root: Path, files: int, size: int) -> Figures:
    """Copy the files with `cp`, and sync."""
    source, target = root / "source", root / "target"
    source.mkdir(parents=True)
    fill(source, files, size)
    with measured("cp and sync", root / "none") as figures:
        subprocess.run(["cp", "-r", str(source), str(target)], check=True)
        subprocess.run(["sync", "-f", str(target)], check=True)
    return figures


def plainly_sent(root: Path, files: int, size: int, address: str) -> list[Figures]:
    """Send the files with boto3's `upload_file`, and fetch them with `download_file`."""
    client = boto3.client("s3", endpoint_url=address)
    source = root / "source"
    source.mkdir(parents=True)
    fill(source, files, size)
    with measured("boto3, sent", root / "none") as up:
        for path in sorted(source.iterdir()):
            client.upload_file(str(path), "plain", path.name)
    names = [path.name for path in source.iterdir()]
    shutil.rmtree(source)
    with measured("boto3, fetched", root / "none") as down:
        for name in names:
            client.download_file("plain", name, str(root / name))
    return [up, down]


@contextmanager
def measured(name: str, staging: Path, made: Way | None = None) -> Iterator[Figures]:
    """Measure a block, and the most that a folder takes meanwhile."""
    figures, over = Figures(name), Event()

    def watch() -> None:
        while not over.wait(0.05):
            figures.extra_disk = max(figures.extra_disk, weight(staging))

    watching = Thread(target=watch)
    watching.start()
    began, busy, moved = time.monotonic(), time.process_time(), _moved()
    served = made.served_s if made else 0.0
    try:
        yield figures
    finally:
        now = _moved()
        figures.took_s, figures.busy_s = time.monotonic() - began, time.process_time() - busy
        figures.served_s = made.served_s - served if made else 0.0
        figures.read, figures.written = now[0] - moved[0], now[1] - moved[1]
        over.set()
        watching.join()


def _moved() -> tuple[int, int]:
    """Return the bytes that this process has read from and written to files."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    told = dict(line.split(": ") for line in lines)
    return int(told["rchar"]), int(told["wchar"])
