"""What a job may ask of Forge and tell it: `from forge_worker import job`.

Outside of Forge the same calls do no harm: nobody asks for a stop, and reports go nowhere. Every
function may be called from any thread. This one file is in every job, whatever Python that has
from 3.8 on, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path


def should_stop() -> bool:
    """Tell whether the job is to end soon: it should store its state, and exit."""
    file = os.environ.get("FORGE_PREEMPT_FILE")
    return file is not None and Path(file).is_file()


def report(**values: object) -> None:
    """Tell how far the job is, as `report(step=3, total=10, loss=0.5)`.

    Numbers of libraries, such as a tensor of one element, become plain ones. A line that cannot be
    written for the disk's sake is left out.

    Raises:
        ValueError: a value holds itself.
    """
    line = json.dumps(values, default=_plain) + "\n"
    file = os.environ.get("FORGE_METRICS_FILE")
    if file:
        with suppress(OSError):
            _append(file, line.encode())


def checkpoint_dir() -> Path:
    """Return the folder that is stored while the job runs, and restored in its next attempt."""
    return _folder("FORGE_CHECKPOINT_DIR", "checkpoint")


def output_dir() -> Path:
    """Return the folder whose files become the job's artifacts."""
    return _folder("FORGE_OUTPUT_DIR", "output")


def save_now() -> None:
    """Have the checkpoint folder stored as soon as possible, and go on at once."""
    file = os.environ.get("FORGE_CHECKPOINT_FILE")
    if file:
        with suppress(OSError):
            Path(file).touch()


def _folder(variable: str, otherwise: str) -> Path:
    folder = Path(os.environ.get(variable) or otherwise)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _append(file: str, line: bytes) -> None:
    # In one call, so that the lines of several threads and processes do not mix.
    place = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(place, line)
    finally:
        os.close(place)


def _plain(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item):
        with suppress(Exception):
            return item()
    return str(value)
