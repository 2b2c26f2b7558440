"""Run the measurements and print the tables of RESULTS.md."""

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

from benchmarks.storage.artifacts import small_artifacts
from benchmarks.storage.checkpoint import Figures, checkpoints, copied, plainly_sent
from benchmarks.storage.project import project
from benchmarks.storage.s3_server import s3_server

T = TypeVar("T")
Act = Callable[..., list[Figures]]
HEAD = "| | s | CPU s | read | written | sent | extra disk |\n|---|---|---|---|---|---|---|"


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks/storage")
    parser.add_argument("--files", type=int, default=8, help="files in a checkpoint; 0 for none")
    parser.add_argument("--mb", type=int, default=256, help="size of each in MiB")
    parser.add_argument("--project-files", type=int, default=3000, help="0 for no project")
    parser.add_argument("--project-kb", type=int, default=100, help="their average size in KiB")
    parser.add_argument("--artifacts", type=int, default=6000, help="small artifacts; 0 for none")
    parser.add_argument("--folder", type=Path, help="where to write; by default, the temporary one")
    asked = parser.parse_args()
    size = asked.mb << 20
    print(f"{asked.files} files of {asked.mb} MiB, load {os.getloadavg()[0]:.1f}\n\n{HEAD}")
    if asked.files:
        _shown("copy", _apart(asked.folder, lambda root: [copied(root, asked.files, size)]))
        _shown("S3", _apart(asked.folder, lambda root: _plain(root, asked.files, size)))
    acts: list[Act] = []
    if asked.files:
        acts.append(partial(checkpoints, files=asked.files, size=size))
    if asked.project_files:
        acts.append(partial(project, files=asked.project_files, size=asked.project_kb << 10))
    for act, store, over_http in product(acts, ("folder", "S3"), (False, True)):
        name = f"{store}, {'HTTP' if over_http else 'direct'}"
        _shown(name, _apart(asked.folder, partial(_on, act, store, over_http)))
    small = partial(small_artifacts, count=asked.artifacts)
    for store, over_http in product(("folder", "S3"), (False, True)) if asked.artifacts else ():
        took, worker, server = _apart(asked.folder, partial(_on, small, store, over_http))
        print(
            f"\n{asked.artifacts} artifacts of 4 bytes, {store},"
            f" {'HTTP' if over_http else 'direct'}:"
            f" {took:.1f} s; CPU: worker {worker:.1f} s, server {server:.1f} s",
            flush=True,
        )


def _apart(folder: Path | None, act: Callable[[Path], T]) -> T:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        return act(Path(root) / "bench")


def _plain(root: Path, files: int, size: int) -> list[Figures]:
    root.mkdir()
    with s3_server(root / "s3") as (address, _):
        return plainly_sent(root / "plain", files, size, address)


def _on(act: Callable[..., T], store: str, over_http: bool, root: Path) -> T:  # noqa: FBT001
    root.mkdir()
    if store == "folder":
        return act(root / "way", over_http=over_http, store_url=None)
    with s3_server(root / "s3") as (_, url):
        return act(root / "way", over_http=over_http, store_url=url)


def _shown(name: str, found: list[Figures]) -> None:
    for one in found:
        moved = (one.read, one.written, one.sent, one.extra_disk)
        numbers = " | ".join(f"{bytes_ / (1 << 20):.0f}" for bytes_ in moved)
        print(
            f"| {name}: {one.name} | {one.took_s:.2f} | {one.busy_s:.2f} | {numbers} |", flush=True
        )
