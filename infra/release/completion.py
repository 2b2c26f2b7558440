"""Completion scripts of `forge`, which ask the program itself for words."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The names by which the shells find them in their folders for completion.
FILES = {"bash": "forge", "zsh": "_forge", "fish": "forge.fish"}


def write(folder: Path) -> Iterator[Path]:
    """Write a script for each shell into a folder of its own, and yield it."""
    for shell, name in FILES.items():
        file = folder / shell / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_script(shell), encoding="utf-8")
        yield file


def _script(shell: str) -> str:
    forge = Path(sys.executable).with_name("forge")
    done = subprocess.run(  # noqa: S603 - our own program
        [forge],
        env={**os.environ, "_FORGE_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"{done.stdout.strip()}\n"
