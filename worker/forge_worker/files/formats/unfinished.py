"""Recognise what killed saves left behind, to be carried from attempt to attempt no longer.

Each kill may leave a temporary file as large as a model, which its library never removes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from forge_schema.storage.manifest import Entry

# Random names, which no later save uses again: safetensors, zarr, CatBoost; and Orbax' folders.
RANDOM = re.compile(
    r"\.tmp[A-Za-z0-9]{6}|.+\.[0-9a-f]{32}\.partial|cat_feature_index\.[0-9A-Fa-f-]{8,}\.tmp",
    re.DOTALL,
)
FOLDER = re.compile(r".+\.orbax-checkpoint-tmp(-\d+)?", re.DOTALL)
# What is written first and then renamed to the rest of its name.
BEFORE_RENAME = re.compile(r"(.+)\.(?:tmp|partial|part|incomplete)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The paths of leftovers in a checkpoint: `old` ones to leave out, `new` ones to restore."""

    old: frozenset[str]
    new: frozenset[str]


def unfinished(files: Iterable[Entry], attempt: int) -> Unfinished:
    """Find the leftovers in a checkpoint that an attempt stored.

    They are left out if the attempt did not touch them, although it stored other files, which are
    all newer. So a file is restored at least once, and what a program still uses is never lost.
    """
    entries = {entry.path: entry for entry in files if not entry.target}
    own = {path for path, entry in entries.items() if _stored_by(entry) >= attempt}
    found = frozenset(path for path in entries if _looks_unfinished(path, own))
    changed = [entries[path].mtime_ns for path in own - found]
    since = min((at for at in changed if at is not None), default=None)
    if since is None or None in changed:
        return Unfinished(frozenset(), found)
    untouched = {path: at for path in found - own if (at := entries[path].mtime_ns) is not None}
    old = frozenset(path for path, at in untouched.items() if at < since)
    return Unfinished(old, found - old)


def _looks_unfinished(path: str, own: set[str]) -> bool:
    *folders, name = PurePosixPath(path).parts
    if RANDOM.fullmatch(name) or any(map(FOLDER.fullmatch, folders)):
        return True
    renamed = BEFORE_RENAME.fullmatch(path)
    # A file that was saved without it.
    return renamed is not None and renamed[1] in own


def _stored_by(entry: Entry) -> int:
    """Return the number of the attempt that stored the newest part of a file."""
    return max(int(key.split("/")[2].partition("-")[0]) for key in entry.objects)
