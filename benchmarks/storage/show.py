"""Run the measurements and print the tables of RESULTS.md."""

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

from benchmarks.storage.artifacts import plain_puts, small_artifacts
from benchmarks.storage.checkpoint import Figures, checkpoints, copied, plainly_sent
from benchmarks.storage.project import project
from benchmarks.storage.s3_server import s3_server

T = TypeVar("T")
THREADS = (8, 32)
Act = Callable[..., list[Figures]]
HEAD = (
    "| | s | CPU s | CPU s of the server | read | written | sent | extra disk |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks/storage")
    parser.add_argument("--files", type=int, default=8, help="files in a checkpoint; 0 for none")
    parser.add_argument("--mb", type=float, default=256, help="size of each in MiB")
    parser.add_argument("--project-files", type=int, default=3000, help="0 for no project")
    parser.add_argument("--project-kb", type=int, default=100, help="their average size in KiB")
    parser.add_argument("--artifacts", type=int, default=6000, help="small artifacts; 0 for none")
    parser.add_argument("--delay-ms", type=float, default=20, help="of S3 for each small artifact")
    parser.add_argument("--folder", type=Path, help="where to write; by default, the temporary one")
    asked = parser.parse_args()
    size = int(asked.mb * (1 << 20))
    print(f"{asked.files} files of {asked.mb:g} MiB, load {os.getloadavg()[0]:.1f}\n\n{HEAD}")
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
    if asked.artifacts:
        _artifacts(asked.folder, asked.artifacts, asked.delay_ms / 1000)


def _artifacts(folder: Path | None, count: int, delay_s: float) -> None:
    print(
        f"\n| {count} artifacts of 4 bytes | s | CPU s | CPU s of the server |\n|---|---|---|---|"
    )
    small = partial(small_artifacts, count=count)
    for store, over_http in product(("folder", "S3"), (False, True)):
        name = f"{store}, {'HTTP' if over_http else 'direct'}"
        _line(name, _apart(folder, partial(_on, small, store, over_http, delay_s=delay_s)))
    for threads in THREADS:

        def plain(root: Path, threads: int = threads) -> tuple[float, float, float]:
            root.mkdir()
            with s3_server(root / "s3", delay_s) as (address, _):
                return plain_puts(root / "plain", count, address=address, threads=threads)

        _line(f"S3, boto3, {threads} threads", _apart(folder, plain))


def _line(name: str, figures: tuple[float, float, float]) -> None:
    print(f"| {name} | {' | '.join(f'{one:.1f}' for one in figures)} |", flush=True)


def _apart(folder: Path | None, act: Callable[[Path], T]) -> T:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        return act(Path(root) / "bench")


def _plain(root: Path, files: int, size: int) -> list[Figures]:
    root.mkdir()
    with s3_server(root / "s3") as (address, _):
        return plainly_sent(root / "plain", files, size, address)


def _on(
    act: Callable[..., T],
    store: str,
    over_http: bool,  # noqa: FBT001
    root: Path,
    delay_s: float = 0.0,
) -> T:
    root.mkdir()
    if store == "folder":
        return act(root / "way", over_http=over_http, store_url=None)
    with s3_server(root / "s3", delay_s) as (_, url):
        return act(root / "way", over_http=over_http, store_url=url)


def _shown(name: str, found: list[Figures]) -> None:
    for one in found:
        moved = (one.read, one.written, one.sent, one.extra_disk)
        numbers = " | ".join(f"{bytes_ / (1 << 20):.0f}" for bytes_ in moved)
        seconds = f"{one.took_s:.2f} | {one.busy_s:.2f} | {one.served_s:.2f}"
        print(f"| {name}: {one.name} | {seconds} | {numbers} |", flush=True)
