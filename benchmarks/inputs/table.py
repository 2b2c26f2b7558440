"""Runs the fetches in turn, and prints how many times boto3's and the AWS command's they take."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.commands.measure import ROOMS, ROOT, Cost, cost
from benchmarks.inputs.starts import starts
from benchmarks.storage.s3_server import s3_server

BUCKET = "bucket"


def main(description: str | None) -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mb", type=int, default=2048, help="size of the large file in MiB")
    parser.add_argument("--files", type=int, default=20_000, help="how many small files")
    parser.add_argument("--bytes", type=int, default=10_000, help="the size of each")
    parser.add_argument("--pairs", type=int, default=3, help="0 for no fetches")
    parser.add_argument("--starts", type=int, default=9, help="pairs of jobs; 0 for none")
    parser.add_argument("--image", help="have them run in containers of it, not as processes")
    parser.add_argument("--aws", help="the AWS command, if it is there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with s3_server(root / "s3") as (address, _):
            _write(root / "s3" / BUCKET / "large", asked.mb << 20)
            for number in range(asked.files if asked.pairs else 0):
                _write(root / "s3" / BUCKET / "small" / str(number), asked.bytes)
            if asked.starts:
                ratio = starts(
                    root / "starts", address, f"s3://{BUCKET}/large", asked.starts, asked.image
                )
                print(f"| a start with {asked.mb} MiB that are there | {ratio:.2f} |", flush=True)
            sizes = {"large": f"{asked.mb} MiB", "small": f"{asked.files} of {asked.bytes} B"}
            for prefix, size in sizes.items() if asked.pairs else ():
                commands = dict(_commands(address, prefix, root / "fetched", asked.aws))
                _shown(size, commands, root / "fetched", asked.pairs)


def _write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for begin in range(0, size, 1 << 20):
            file.write(os.urandom(min(1 << 20, size - begin)))


def _commands(
    address: str, prefix: str, folder: Path, aws: str | None
) -> Iterator[tuple[str, Sequence[str]]]:
    for way in ("forge", "boto3"):
        words = ("-m", "benchmarks.inputs.fetches", way, address, prefix, str(folder))
        yield way, (sys.executable, *words)
    if aws:
        copied = (f"s3://{BUCKET}/{prefix}", str(folder / "large" if prefix == "large" else folder))
        each = () if prefix == "large" else ("--recursive", "--only-show-errors")
        yield "aws s3 cp", (aws, "--endpoint-url", address, "s3", "cp", *each, *copied)


def _shown(size: str, commands: dict[str, Sequence[str]], folder: Path, pairs: int) -> None:
    paths = os.pathsep.join(str(ROOT / room) for room in (*ROOMS, "", "tests"))
    env = {**os.environ, "PYTHONPATH": paths}
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(pairs):
        for name, command in commands.items():
            folder.mkdir()
            costs[name].append(cost(command, env))
            shutil.rmtree(folder)
    ours = costs.pop("forge")
    for name, others in costs.items():
        both = list(zip(ours, others, strict=True))
        cpu = median(one.cpu_ms / other.cpu_ms for one, other in both)
        wall = median(one.wall_ms / other.wall_ms for one, other in both)
        print(
            f"| {size} | {name} | {cpu:.2f} | {wall:.2f} |"
            f" {median(one.cpu_ms for one in ours) / 1000:.1f} |"
            f" {median(one.cpu_ms for one in others) / 1000:.1f} |"
            f" {median(one.peak_mib for one in ours):.0f} |",
            flush=True,
        )
