"""Run the measurements and print the tables of RESULTS.md."""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.storage.artifacts import small_artifacts
from benchmarks.storage.checkpoint import Figures, checkpoints, copied, plainly_sent
from benchmarks.storage.s3_server import s3_server

T = TypeVar("T")
HEAD = "| | s | CPU s | read | written | sent | extra disk |\n|---|---|---|---|---|---|---|"


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks/storage")
    parser.add_argument("--files", type=int, default=8, help="files in a checkpoint")
    parser.add_argument("--mb", type=int, default=256, help="size of each in MiB")
    parser.add_argument("--artifacts", type=int, default=6000, help="small artifacts; 0 for none")
    parser.add_argument("--folder", type=Path, help="where to write; by default, the temporary one")
    asked = parser.parse_args()
    size = asked.mb << 20
    print(f"{asked.files} files of {asked.mb} MiB, load {os.getloadavg()[0]:.1f}\n\n{HEAD}")
    _shown("copy", _apart(asked.folder, lambda root: [copied(root, asked.files, size)]))
    _shown("S3", _apart(asked.folder, lambda root: _plain(root, asked.files, size)))
    for store in ("folder", "S3"):
        for over_http in (False, True):
            name = f"{store}, {'HTTP' if over_http else 'direct'}"
            _shown(name, _apart(asked.folder, _stored(asked.files, size, store, over_http)))
    if asked.artifacts:
        took, worker, server = _apart(
            asked.folder, lambda root: small_artifacts(root, asked.artifacts)
        )
        print(
            f"\n{asked.artifacts} artifacts of 4 bytes over HTTP: {took:.1f} s;"
            f" CPU: worker {worker:.1f} s, server {server:.1f} s"
        )


def _apart(folder: Path | None, act: Callable[[Path], T]) -> T:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        return act(Path(root) / "bench")


def _plain(root: Path, files: int, size: int) -> list[Figures]:
    root.mkdir()
    with s3_server(root / "s3") as (address, _):
        return plainly_sent(root / "plain", files, size, address)


def _stored(files: int, size: int, store: str, over_http: bool) -> Callable[[Path], list[Figures]]:  # noqa: FBT001
    def act(root: Path) -> list[Figures]:
        root.mkdir()
        if store == "folder":
            return checkpoints(root / "way", files, size, over_http=over_http, store_url=None)
        with s3_server(root / "s3") as (_, url):
            return checkpoints(root / "way", files, size, over_http=over_http, store_url=url)

    return act


def _shown(name: str, found: list[Figures]) -> None:
    for one in found:
        moved = (one.read, one.written, one.sent, one.extra_disk)
        numbers = " | ".join(f"{bytes_ / (1 << 20):.0f}" for bytes_ in moved)
        print(
            f"| {name}: {one.name} | {one.took_s:.2f} | {one.busy_s:.2f} | {numbers} |", flush=True
        )
