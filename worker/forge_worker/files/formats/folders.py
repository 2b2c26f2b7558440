"""Recognise what a training framework has only half written, by the formats of its files.

A program that is killed leaves a file or a folder as it was at that moment. The next attempt would
fail to load it, although an older one beside it is whole. Each kill may also leave a temporary file
as large as a model, which its library never removes; no later attempt is given it.
"""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from forge_schema.storage.manifest import Entry

from forge_worker.files.safe_files import Listing

# `torch.save` writes a zip archive, whose directory comes last; a comment may follow it.
ZIP, ZIP_END, ZIP_END_BYTES = b"PK\x03\x04", b"PK\x05\x06", 22
ZIP_TAIL = ZIP_END_BYTES + 0xFFFF
SAFETENSORS, LENGTH_BYTES, LONGEST_HEADER = ".safetensors", 8, 100 << 20
# A folder of a step that looks like a Trainer's counts as half for so long after a write to it.
YOUNG_NS = 10_000_000_000
# Hugging Face's Trainer writes its state last, in a folder for each saved step …
STEP_FOLDER, STEP_STATE, STEP_SIGN = (
    re.compile(r"checkpoint-\d+"),
    "trainer_state.json",
    "training_args.bin",
)
# … and PyTorch's distributed checkpoints their metadata, once all ranks have written their parts.
PART, METADATA = ".distcp", ".metadata"

# Random names, which no later save uses again: safetensors, zarr, CatBoost; and Orbax' folders.
RANDOM = re.compile(
    r"\.tmp[A-Za-z0-9]{6}|.+\.[0-9a-f]{32}\.partial|cat_feature_index\.[0-9A-Fa-f-]{8,}\.tmp",
    re.DOTALL,
)
FOLDER = re.compile(r".+\.orbax-checkpoint-tmp(-\d+)?", re.DOTALL)
# What is written first and then renamed to the rest of its name.
BEFORE_RENAME = re.compile(r"(.+)\.(?:tmp|partial|part|incomplete)", re.DOTALL)


def is_half(file: BinaryIO, name: str, size: int) -> bool:
    """Tell whether a file of `size` bytes is surely only the beginning of one.

    It is, if it begins as a zip archive and has no end, or if it is smaller than its safetensors
    header says.
    """
    head = os.pread(file.fileno(), LENGTH_BYTES, 0)
    if head.startswith(ZIP):
        return _lacks_end(os.pread(file.fileno(), ZIP_TAIL, max(0, size - ZIP_TAIL)))
    return name.endswith(SAFETENSORS) and size < _declared(file, head)


def _lacks_end(tail: bytes) -> bool:
    place = tail.rfind(ZIP_END)
    comment = int.from_bytes(tail[place + ZIP_END_BYTES - 2 : place + ZIP_END_BYTES], "little")
    return place < 0 or place + ZIP_END_BYTES + comment > len(tail)


def _declared(file: BinaryIO, head: bytes) -> int:
    length = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or length > LONGEST_HEADER:
        return 0
    try:
        tensors = json.loads(os.pread(file.fileno(), length, LENGTH_BYTES)).items()
        ends = [tensor["data_offsets"][1] for name, tensor in tensors if name != "__metadata__"]
        return LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        # Its header is cut off.
        return LENGTH_BYTES + length


def whole(listing: Listing, now_ns: int) -> Listing:
    """Return a folder's files without those in folders that were only half written.

    Args:
        listing: the files.
        now_ns: the time, or that of a kill, before which a folder is young for a while; a program
            that ended by itself leaves none.
    """
    folders: dict[str, set[str]] = {}
    young: set[str] = set()
    for path, (_, mtime_ns, _) in listing.items():
        # Not with pathlib: this is done for each of a hundred thousand files, several times.
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, set()).add(name)
        if 0 <= now_ns - mtime_ns < YOUNG_NS:
            young.add(folder)
    trained = {
        f.rpartition("/")[0] for f, names in folders.items() if names & {STEP_STATE, STEP_SIGN}
    }
    half = [f"{f}/" for f, names in folders.items() if _is_half_folder(f, names, trained, young)]
    if not half:
        return listing
    return {path: status for path, status in listing.items() if not path.startswith(tuple(half))}


def _is_half_folder(folder: str, names: set[str], trained: set[str], young: set[str]) -> bool:
    if METADATA not in names and any(name.endswith(PART) for name in names):
        return True
    above, _, name = folder.rpartition("/")
    if STEP_STATE in names or not STEP_FOLDER.fullmatch(name):
        return False
    # Another program may have such folders as well.
    return folder in young or above in trained


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
    leftovers = frozenset(path for path in entries if looks_unfinished(path, own))
    changed = [entries[path].mtime_ns for path in own - leftovers]
    since = min((at for at in changed if at is not None), default=None)
    if since is None or None in changed:
        return Unfinished(frozenset(), leftovers)
    untouched = {path: at for path in leftovers - own if (at := entries[path].mtime_ns) is not None}
    old = frozenset(path for path, at in untouched.items() if at < since)
    return Unfinished(old, leftovers - old)


def looks_unfinished(path: str, own: set[str]) -> bool:
    """Tell whether a file is a leftover by its name, or beside the one of `own` that it became."""
    *folders, name = PurePosixPath(path).parts
    if RANDOM.fullmatch(name) or any(map(FOLDER.fullmatch, folders)):
        return True
    renamed = BEFORE_RENAME.fullmatch(path)
    # A file that was saved without it.
    return renamed is not None and renamed[1] in own


def _stored_by(entry: Entry) -> int:
    """Return the number of the attempt that stored the newest part of a file."""
    return max(int(key.split("/")[2].partition("-")[0]) for key in entry.objects)
