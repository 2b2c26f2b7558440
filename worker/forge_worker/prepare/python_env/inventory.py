"""What an environment held when it was made, so that one which was damaged since is not used."""

import json
import stat
from pathlib import Path

from forge_worker.files.atomic import write_atomically
from forge_worker.files.safe_files import walk

FILE = "complete"
# Python writes these itself, whenever it likes.
COMPILED = "__pycache__"

Sizes = dict[str, int]
"""Relative path to size; of a link, its own."""


def write(folder: Path, env: Path) -> None:
    """Write down what the environment holds, which also says that it is complete.

    Raises:
        OSError: the disk is full or faulty.
    """
    write_atomically(folder / FILE, json.dumps(_sizes(env)), durable=True)


def damage(folder: Path, env: Path) -> str | None:
    """Return what is wrong with an environment; None where it is as it was made.

    Raises:
        FileNotFoundError: it was never complete.
    """
    try:
        made = json.loads((folder / FILE).read_bytes())
        found = _sizes(env)
        wrong = [path for path, size in made.items() if found.get(path) != size]
    except (ValueError, AttributeError):
        return "its list of files cannot be read"
    if not wrong:
        return None
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"missing or changed: {min(wrong)!r}{more}"


def _sizes(env: Path) -> Sizes:
    return {
        "/".join(parts): status.st_size
        for parts, status in walk(env)
        if not stat.S_ISDIR(status.st_mode) and COMPILED not in parts
    }
