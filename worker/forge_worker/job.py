"""The API for code that runs in a job: `from forge_worker import job`.

Outside Forge the calls do nothing: no stop is ever requested, and reports are discarded. Every
function is thread-safe. This file is added to every job, with any Python from 3.8 on, so it imports
only the standard library.
"""

from __future__ import annotations

import json
import operator
import os
import threading
from contextlib import suppress
from pathlib import Path

LARGEST_STEP = 2**53 - 1


def should_stop() -> bool:
    """Return whether the job has been asked to stop; it should save its state and exit."""
    file = os.environ.get("FORGE_PREEMPT_FILE")
    return file is not None and Path(file).is_file()


def report(**values: object) -> None:
    """Report progress and metrics, for example `report(step=3, total=10, loss=0.5)`.

    Library numbers, such as one-element tensors, are converted to plain ones. If the disk is full,
    the report is dropped.

    Raises:
        ValueError: a value contains itself.
    """
    line = json.dumps(values, default=_plain) + "\n"
    file = os.environ.get("FORGE_METRICS_FILE")
    if file:
        with suppress(OSError):
            _append(file, line.encode())


def checkpoint_dir() -> Path:
    """Return the checkpoint folder: stored while the job runs, restored in its next attempt."""
    return _folder("FORGE_CHECKPOINT_DIR", "checkpoint")


def output_dir() -> Path:
    """Return the folder whose files become the job's artifacts."""
    return _folder("FORGE_OUTPUT_DIR", "output")


def save_now(step: int | None = None) -> None:
    """Request a save of the checkpoint folder as soon as possible, without waiting for it.

    With a step, this commits it: from now on, the folder is stored only for such commits. Of a job
    on several machines, each machine must commit the same steps, in one of its processes. Leave the
    files of a step alone until the next one is committed.

    Raises:
        ValueError: the step is negative, or above 2**53 - 1.
        TypeError: it is no whole number.
    """
    if step is not None and not 0 <= operator.index(step) <= LARGEST_STEP:
        raise ValueError(f"a step is a number from 0 to 2**53 - 1, and not {step}")
    file = os.environ.get("FORGE_CHECKPOINT_FILE")
    if file:
        with suppress(OSError):
            if step is None:
                Path(file).touch()
            else:
                _replace(file, f"{operator.index(step)}\n")


def _folder(variable: str, otherwise: str) -> Path:
    folder = Path(os.environ.get(variable) or otherwise)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _append(file: str, line: bytes) -> None:
    # One write call, so that lines from several threads and processes do not mix.
    place = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(place, line)
    finally:
        os.close(place)


def _replace(file: str, text: str) -> None:
    # The worker must never read half a number, nor take two commits for one.
    new = Path(f"{file}.{os.getpid()}.{threading.get_ident()}")
    new.write_text(text)
    new.replace(file)


def _plain(value: object) -> object:
    item = getattr(value, "item", None)
    if callable(item):
        with suppress(Exception):
            return item()
    return str(value)
